"""Which retired storage nodes are emptied (`core.repair.emptied`), as repairers of a simulated cluster write it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.storage_nodes import NodeView
from oncelog.core.repair.emptied import may_need
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.store import ABSENT, Store

if TYPE_CHECKING:
    from tests.simulation.servers.metadata.metadata_server import MetadataServer

FOLDER = "emptied"


def emptied_path(node: Incarnation) -> str:
    return f"{FOLDER}/{node}"


def note_emptied(
    server: "MetadataServer",
    store: Store,
    views: Iterable[NodeView],
    listed: Iterable[LedgerId],
    nodes: Iterable[StorageServer],
) -> None:
    """By what this replica reads now. Storage nodes take the note at once, unless one is in a higher era: then the
    replica is of a former one. listed: all ledgers that a list names."""
    world = server.world
    away = store.lost or store.stalled_until > world.now or server.parts.network.cut(server.name, "store")
    retired = [view.incarnation for view in views if view.retired]
    due = [node for node in retired if store.get(emptied_path(node))[0] is None]
    if not due or away or any(node.core.era.number > store.era.number for node in nodes):
        return
    found = [store.get(f"ledgers/{ledger_id}")[0] for ledger_id in listed]
    if None in found:
        return  # a record is missing for a while
    records = [decode_ledger(data) for data in found if data is not None]
    below = LedgerId(store.era.first_id)
    for node in due:
        if not any(may_need(record, node, restored_below=below) for record in records):
            world.count("retired storage node emptied")
            store.put(emptied_path(node), b"", ABSENT)
