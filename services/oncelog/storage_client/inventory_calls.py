"""The inventory of a storage node, read page by page: what a rebuild of ZooKeeper's records starts from."""

from crc32c import crc32c

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import DeadlineExceeded, InvalidArgument
from oncelog.core.formats.entry import body_of, decode_entry
from oncelog.core.formats.head import LedgerHead, decode_head
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.node.node_ledger import PURPOSES
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import INVENTORY
from oncelog.storage_client.node_calls import DISK_TIMEOUT_MS, require_ok
from oncelog.wire import recovery_pb2 as pb

_STATES = {int(state): state for state in CopyState}
#: Small enough that a serving node is not held up by one page.
PAGE_LEDGERS = 1024
#: For a node that takes too long for such a page: two reads of a slow disk for each ledger.
SLOW_PAGE_LEDGERS = 64


async def look_at_inventory(
    channel: Channel, node: Incarnation, *, timeout_ms: int = DISK_TIMEOUT_MS
) -> pb.InventoryAnswer:
    """What the node says of itself, with at most one ledger. Raises OncelogError."""
    request = pb.InventoryRequest(target=node, after_ledger=-1, ledgers_max=1)
    page = await channel.call(INVENTORY, request, timeout_ms=timeout_ms)
    require_ok(node, page.status)
    return page


async def read_inventory(
    channel: Channel, node: Incarnation, *, page_ledgers: int = PAGE_LEDGERS, timeout_ms: int = DISK_TIMEOUT_MS
) -> Inventory:
    """All that the node has. timeout_ms: of one page; after the first one that takes longer, pages are smaller. Its era
    is that of the first page: later pages may be newer.

    Raises OncelogError: CorruptEntry for a head that only a newer version can read.
    """
    ledgers: dict[LedgerId, HeldLedger] = {}
    request = pb.InventoryRequest(target=node, after_ledger=-1, ledgers_max=page_ledgers)
    first: pb.InventoryAnswer | None = None
    limbo_below = 0
    while True:
        try:
            page = await channel.call(INVENTORY, request, timeout_ms=timeout_ms)
        except DeadlineExceeded:
            if request.ledgers_max <= SLOW_PAGE_LEDGERS:
                raise
            request.ledgers_max = SLOW_PAGE_LEDGERS
            continue
        require_ok(node, page.status)
        first = first or page
        limbo_below = max(limbo_below, page.limbo_below)
        for found in page.ledgers:
            held = _held(found)
            ledgers[held.ledger_id] = held
        if not page.more or not page.ledgers:
            break
        request.after_ledger = page.ledgers[-1].ledger_id
    floors = {_chain(floor.topic_id, floor.purpose): LedgerId(floor.below) for floor in page.floors}
    era, committed = (
        Era.checked(first.era, first.restore_id),
        frozenset({FIRST_ERA, *map(Era.parse, first.committed_eras)}),
    )
    return Inventory(node, first.cluster_id, era, ledgers, LedgerId(limbo_below), floors, committed)


def _held(found: pb.InventoryLedger) -> HeldLedger:
    """Raises InvalidArgument for what this version does not know."""
    ledger_id, state = LedgerId(found.ledger_id), _STATES.get(found.state)
    if state is None:
        raise InvalidArgument(f"the state {found.state} of ledger {ledger_id} is unknown: use a newer version")
    ends = list(map(EntryId, found.runs))
    return HeldLedger(
        ledger_id,
        _chain(found.topic_id, found.purpose) if found.topic_id else None,
        state,
        tuple(EntryRange(first, last) for first, last in zip(ends[::2], ends[1::2], strict=True)),
        EntryId(found.last_add_confirmed),
        found.fenced,
        _head(ledger_id, found.head) if found.head else None,
        found.base_index,
        found.last_length,
        OwnerEpoch(found.owner_epoch),
        found.deleted,
        found.erased_before,
    )


def _chain(topic_id: str, purpose: int) -> Chain:
    """Raises InvalidArgument for a purpose that this version does not know."""
    if purpose >= len(PURPOSES):
        raise InvalidArgument(f"purpose {purpose} of a ledger of topic {topic_id} is unknown: use a newer version")
    return Chain(TopicId(topic_id), PURPOSES[purpose])


def _head(ledger_id: LedgerId, data: bytes) -> LedgerHead:
    decode_entry(data, ledger_id=ledger_id, entry_id=EntryId(0), checksum=crc32c)
    return decode_head(body_of(data))
