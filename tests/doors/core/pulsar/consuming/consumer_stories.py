"""Steps of stories about what one consumer of Pulsar holds."""

from collections.abc import Sequence

from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import EntryId, LedgerId, Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.acknowledgements import AckAsked, AckDecision, NamedId
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived
from oncelog_doors.core.pulsar.consuming.outstanding import Arrival, Outgoing, Outstanding
from tests.doors.core.pulsar.message_sets import indexes, ranges, set_bits

EPOCH = SeekEpoch(2)
#: Of each entry: entry n has the messages 10 n to 10 n + 9.
COUNT = 10


def shared(**settings: int) -> Outstanding[str]:
    return Outstanding(cumulative=False, keeps_order=False, **settings)


def exclusive(**settings: int) -> Outstanding[str]:
    return Outstanding(cumulative=True, keeps_order=True, **settings)


def key_shared() -> Outstanding[str]:
    return Outstanding(cumulative=False, keeps_order=True)


def arrive(
    table: Outstanding[str],
    entry: int,
    messages: Sequence[int] | None = None,
    *,
    can_be_cut: bool = True,
    epoch: SeekEpoch = EPOCH,
    ledger: int = 5,
) -> Arrival:
    """messages: numbers in the entry; None: all."""
    meant = range(COUNT) if messages is None else messages
    place = Position(LedgerId(ledger), EntryId(entry))
    meant_ranges = ranges(10 * entry + number for number in meant)
    return table.arrived(Arrived(f"entry {entry}", place, 10 * entry, COUNT, meant_ranges, epoch, can_be_cut))


def sent(table: Outstanding[str]) -> list[tuple[int, list[int]]]:
    """Send all that may go: (entry, the numbers of its messages that the client sees)."""
    out = []
    while (outgoing := table.next()) is not None:
        if table.may_go(outgoing):
            out.append(seen(outgoing))
    return out


def seen(outgoing: Outgoing[str]) -> tuple[int, list[int]]:
    entry = outgoing.arrived.base_index // 10
    places = [index - 10 * entry for index in indexes(outgoing.sends)]
    return entry, places if not outgoing.mask else [places[bit] for bit in set_bits(outgoing.mask)]


def deliver(table: Outstanding[str], entry: int, messages: Sequence[int] | None = None) -> None:
    """The client gets them."""
    arrive(table, entry, messages)
    assert sent(table) == [(entry, list(range(COUNT) if messages is None else messages))]


def whole(entry: int, ledger: int = 5) -> NamedId:
    return NamedId(ledger, entry)


def part(entry: int, *not_acknowledged: int, batch_size: int = 0) -> NamedId:
    """With an acknowledgement set, whose bits are given."""
    return NamedId(5, entry, ack_set=(sum(1 << bit for bit in not_acknowledged),), batch_size=batch_size)


def ack(table: Outstanding[str], *ids: NamedId, request_id: int | None = 1, cumulative: bool = False) -> AckDecision:
    return table.acknowledge(AckAsked(ids, cumulative, request_id))


def acked(table: Outstanding[str], *ids: NamedId, cumulative: bool = False) -> list[int]:
    """The messages that are acknowledged, durably at once."""
    decision = ack(table, *ids, request_id=None, cumulative=cumulative)
    if decision.ticket:
        assert table.settled(decision.ticket) == []
    return messages(decision.acknowledge)


def messages(parts: Sequence[IndexRange]) -> list[int]:
    return list(indexes(parts))
