"""The inventory of a simulated storage node, as `log_storage.serve.inventory` gives it: what is synced, by its core."""

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.entry import body_of, peek_header
from oncelog.core.formats.head import HEAD_KINDS, decode_head
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.node.era import EraState
from oncelog.core.node.node_ledger import DELETED, JournalRecord, LedgerOrigin, RecordKind
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from tests.simulation.servers.nodes.storage_server import StorageServer

CLUSTER_ID = "the cluster"


def inventory_of(server: StorageServer) -> Inventory:
    ledgers = server.core.ledgers
    known = sorted({*server.index.entries, *ledgers, *ledgers.tombstones})
    return Inventory(
        server.incarnation,
        CLUSTER_ID,
        server.core.durable_era,
        {ledger_id: _held(server, ledger_id) for ledger_id in known},
        ledgers.limbo.below,
        _floors(server),
        frozenset({FIRST_ERA, *_committed_eras(server)}),
    )


def _since_its_era(server: StorageServer) -> list[JournalRecord]:
    """The synced records behind the one by which the node has learned late of its era; all, if there is none."""
    records = server.disk.records[: server.disk.synced]
    eras = [at for at, each in enumerate(records) if each.kind is RecordKind.ERA]
    late = [at for at in eras if EraState(records[at].entry_id) is EraState.JOINED_LATE]
    return records[late[-1] + 1 :] if late else records


def _floors(server: StorageServer) -> dict[Chain, LedgerId]:
    floors: dict[Chain, LedgerId] = {}
    for each in _since_its_era(server):
        origin = LedgerOrigin.decode(each.data) if each.kind is RecordKind.FLOOR else None
        if origin is not None:
            floors[Chain(*origin)] = max(each.ledger_id, floors.get(Chain(*origin), LedgerId(0)))
    return floors


def _committed_eras(server: StorageServer) -> list[Era]:
    records = (each for each in server.disk.records[: server.disk.synced] if each.kind is RecordKind.ERA)
    committed = (each for each in records if EraState(each.entry_id) is not EraState.CLAIMED)
    return [Era(each.ledger_id, bytes(each.data).decode()) for each in committed]


def _held(server: StorageServer, ledger_id: LedgerId) -> HeldLedger:
    ledgers, index = server.core.ledgers, server.index
    ledger, state = ledgers.peek(ledger_id), server.core.copy_state(ledger_id)
    if ledgers.limbo.covers(ledger_id):
        state = CopyState.LIMBO
    ids = sorted(index.entries.get(ledger_id, ())) if state is not CopyState.ERASED else []
    sound = [each for each in ids if index.read(ledger_id, each) is not None]
    if (len(sound) < len(ids) or ledger.damaged) and state is CopyState.HELD:
        state = CopyState.DAMAGED
    first = index.read(ledger_id, sound[0]) if sound else None
    last = index.read(ledger_id, sound[-1]) if sound else None
    header = None if last is None else peek_header(last)
    has_head = first is not None and sound[0] == 0 and peek_header(first).kind in HEAD_KINDS
    proofs = [r for r in _since_its_era(server) if r.ledger_id == ledger_id and r.kind is RecordKind.LEDGER_ERASED]
    return HeldLedger(
        ledger_id,
        None if ledger.origin is None else Chain(*ledger.origin),
        state,
        _runs(sound),
        ledger.last_add_confirmed,
        ledger.fenced,
        decode_head(body_of(first)) if first is not None and has_head else None,
        0 if first is None else peek_header(first).base_index,
        0 if header is None else header.length,
        OwnerEpoch(0) if header is None else header.owner_epoch,
        deleted=any(record.entry_id == DELETED for record in proofs),
        erased_before=ledger_id in ledgers.tombstones,
    )


def _runs(ids: list[EntryId]) -> tuple[EntryRange, ...]:
    runs: list[EntryRange] = []
    for entry_id in ids:
        if runs and runs[-1].last + 1 == entry_id:
            runs[-1] = EntryRange(runs[-1].first, entry_id)
        else:
            runs.append(EntryRange(entry_id, entry_id))
    return tuple(runs)
