"""Acknowledgements of messages that were not sent to this consumer yet."""

import pytest

from oncelog.core.acks.ack_state import FIRST_EPOCH
from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import EntryId, LedgerId, Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.acknowledgements import AckAsked, NamedId
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived
from oncelog_doors.core.pulsar.consuming.early_acks import EARLY_MAX, EarlyAcks
from oncelog_doors.core.pulsar.consuming.outstanding import Arrival, Outstanding

SOUGHT = SeekEpoch(FIRST_EPOCH + 1)
WHOLE = NamedId(5, 7)


def table() -> Outstanding[str]:
    """Of an exclusive consumer."""
    return Outstanding(cumulative=True, keeps_order=True)


def arrived(*, count: int = 1, seek_epoch: SeekEpoch = FIRST_EPOCH, entry_id: int = 7) -> Arrived[str]:
    position = Position(LedgerId(5), EntryId(entry_id))
    return Arrived("entry", position, 100, count, (IndexRange(100, 99 + count),), seek_epoch)


def named(*asked: AckAsked) -> Outstanding[str]:
    made = table()
    for each in asked:
        decision = made.acknowledge(each)
        assert (decision.acknowledge, decision.ignored) == ((), len(each.ids))
    return made


def test_message_is_acknowledged_when_it_arrives_and_is_not_sent() -> None:
    """It uses no permit, and counts as unacknowledged until it is durable. It is taken once."""
    made = named(AckAsked([WHOLE]))
    assert made.arrived(arrived()) is Arrival.ACKNOWLEDGED
    assert (made.next(), made.unsent, made.unacknowledged) == (None, 1, 1)
    decision = made.acknowledge(AckAsked([WHOLE]))
    assert (decision.acknowledge, decision.ignored) == ((IndexRange(100, 100),), 0)
    made.settled(decision.ticket)
    assert made.unacknowledged == 0
    assert made.arrived(arrived()) is Arrival.TAKEN


@pytest.mark.hazard("ack-of-another-part")
def test_entry_of_several_messages_is_sent() -> None:
    """The client may have had some of them only."""
    assert named(AckAsked([WHOLE])).arrived(arrived(count=2)) is Arrival.TAKEN


@pytest.mark.hazard("late-ack-after-seek")
def test_message_of_a_subscription_that_was_sought_is_sent() -> None:
    """The client may have had it before the seek. Nothing is kept beyond a seek, or while another one is active."""
    assert named(AckAsked([WHOLE])).arrived(arrived(seek_epoch=SOUGHT)) is Arrival.TAKEN
    made = named(AckAsked([WHOLE]))
    made.lost()
    assert made.arrived(arrived()) is Arrival.TAKEN


@pytest.mark.hazard("late-ack-after-seek")
def test_message_of_a_new_subscription_is_sent() -> None:
    """The client may have had it of a subscription that was deleted, and comes back to begin again."""
    made = named(AckAsked([WHOLE]))
    made.created()
    assert made.acknowledge(AckAsked([WHOLE])).ignored == 1
    assert made.arrived(arrived()) is Arrival.TAKEN


@pytest.mark.parametrize(
    "asked",
    [
        AckAsked([WHOLE], request_id=3),  # it is answered that the message comes again
        AckAsked([WHOLE], cumulative=True),
        AckAsked([WHOLE], unreadable=True),
        AckAsked([WHOLE._replace(ack_set=(2,))]),
        AckAsked([WHOLE._replace(batch_index=0)]),
        AckAsked([NamedId(6, 7)]),
    ],
)
def test_what_does_not_name_the_message_alone_is_not_kept(asked: AckAsked) -> None:
    assert named(asked).arrived(arrived()) is Arrival.TAKEN


def test_number_of_kept_ids_is_limited() -> None:
    """A client that names ids without end holds no memory."""
    kept = EarlyAcks()
    kept.name(NamedId(5, number) for number in range(EARLY_MAX + 1))
    assert [kept.take(arrived(entry_id=number)) for number in (EARLY_MAX - 1, EARLY_MAX)] == [True, False]
