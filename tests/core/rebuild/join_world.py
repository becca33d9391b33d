"""What storage nodes hold, and JOIN over it, for the tests of its rules."""

from collections.abc import Mapping, Sequence

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.head import LedgerHead
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.result import (
    Asked,
    CopiedRecords,
    NotedRecords,
    Rebuilt,
    RebuiltTopic,
    ReviewReason,
)
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from oncelog.core.retention.paging import PageSettings

A, B, C, D, E = (Incarnation(letter * 32) for letter in "abcde")
ABC = (A, B, C)
TOPIC, OTHER, NAME = TopicId("7" * 32), TopicId("8" * 32), "public/default/orders"
LOG, ACKS, DEDUP = LedgerPurpose.LOG, LedgerPurpose.ACKS, LedgerPurpose.DEDUP
OPEN, CLOSED = LedgerState.OPEN, LedgerState.CLOSED
Holding = Mapping[Incarnation, HeldLedger | tuple[HeldLedger, ...]]


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(LedgerId(ledger_id), EntryId(entry_id))


def held(
    ledger_id: int,
    last: int,
    *,
    former: Position | None = None,
    first: int = 0,
    purpose: LedgerPurpose = LOG,
    topic: TopicId = TOPIC,
    floor: int = 0,
    head: bool = True,
    members: tuple[Incarnation, ...] = ABC,
    base_index: int = 0,
    state: CopyState = CopyState.HELD,
    erased_before: bool = False,
) -> HeldLedger:
    """Entries first..last; each has 10 bytes. last -1: none."""
    written = LedgerHead(NAME, members, 2, 1, A, LedgerId(floor), former) if head and first == 0 <= last else None
    runs = (EntryRange(EntryId(first), EntryId(last)),) if last >= first else ()
    return HeldLedger(
        LedgerId(ledger_id), Chain(topic, purpose), state, runs, head=written, base_index=base_index,
        last_length=10 * (last + 1), erased_before=erased_before or state is CopyState.ERASED,
    )  # fmt: skip


def joined(
    holding: Holding,
    *,
    absent: Sequence[Incarnation] = (),
    limbo: Sequence[Incarnation] = (),
    also_missing: Sequence[Incarnation] = (),
    floors: Mapping[Incarnation, int] | None = None,
    noted: NotedRecords | None = None,
    copied: CopiedRecords | None = None,
    by: str = "",
    given_up: Sequence[Incarnation] | None = None,
    ack_quorum: int = 2,
    owed_below: int = 0,
    pages: PageSettings | None = None,
    committed: Mapping[Incarnation, Era] | None = None,
    emptied: Sequence[Incarnation] = (),
) -> Rebuilt:
    """JOIN over A, B, C and whoever holds something, without the absent. limbo: of every ledger up to 99. also_missing:
    counted so although they gave an inventory. given_up: all missing ones, if it is done by anybody. committed: the era
    above the first that a node knows."""
    inventories = []
    for node in sorted({*ABC, *holding} - set(absent)):
        ledgers = holding.get(node, ())
        ledgers = ledgers if isinstance(ledgers, tuple) else (ledgers,)
        floor = (floors or {}).get(node)
        inventories.append(
            Inventory(
                node, "cluster", FIRST_ERA, {each.ledger_id: each for each in ledgers},
                LedgerId(100 if node in limbo else 0), {} if floor is None else {Chain(TOPIC, LOG): LedgerId(floor)},
                frozenset({FIRST_ERA, (committed or {}).get(node, FIRST_ERA)}),
            )
        )  # fmt: skip
    missing = (*absent, *also_missing)
    gone = missing if given_up is None else given_up
    asked = Asked(missing, ack_quorum, by, tuple(gone) if by else (), LedgerId(owed_below), frozenset(emptied))
    return join(inventories, noted or NotedRecords(), copied, asked, Era(2, "f" * 32), pages or PageSettings(), 1)


def topic_of(rebuilt: Rebuilt) -> RebuiltTopic:
    (topic,) = rebuilt.topics.values()
    return topic


def listed(rebuilt: Rebuilt) -> list[int]:
    return [link.ledger_id for link in topic_of(rebuilt).record.ledgers]


def record(rebuilt: Rebuilt, ledger_id: int) -> LedgerMetadata:
    return next(each for each in topic_of(rebuilt).ledgers if each.ledger_id == ledger_id)


def reasons(rebuilt: Rebuilt) -> list[ReviewReason]:
    return [review.reason for review in rebuilt.reviews]


def everywhere(*ledgers: HeldLedger) -> dict[Incarnation, tuple[HeldLedger, ...]]:
    return dict.fromkeys(ABC, ledgers)
