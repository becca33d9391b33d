"""Which messages a consumer of Pulsar is sent, and when: one delivery of an entry at a time."""

from collections.abc import Callable

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import LedgerUnavailable
from oncelog.core.ids import SeekEpoch
from oncelog_doors.core.pulsar.consuming import outstanding
from oncelog_doors.core.pulsar.consuming.acknowledgements import AckAsked, GivenBack, NamedId
from oncelog_doors.core.pulsar.consuming.outstanding import Arrival, Outstanding
from oncelog_doors.core.pulsar.server_errors import ServerError
from tests.doors.core.pulsar.consuming.consumer_stories import (
    ack,
    acked,
    arrive,
    deliver,
    exclusive,
    key_shared,
    messages,
    part,
    seen,
    sent,
    shared,
    whole,
)

each_type = pytest.mark.parametrize("opened", [exclusive, key_shared, shared], ids=["all", "keys", "none"])


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_whole_entries_go_as_they_are_and_parts_as_batches_of_their_own() -> None:
    table = shared()
    arrive(table, 1)
    arrive(table, 2, [3, 4, 7])
    first, second = table.next(), table.next()
    assert first is not None
    assert second is not None
    assert (first.all, first.mask, first.messages) == (True, (), 10)
    assert (second.all, second.mask, second.messages) == (False, (), 3)
    assert second.sends == ((23, 24), (27, 27))
    assert second.arrived.entry == "entry 2"
    assert table.next() is None
    assert table.unacknowledged == 13


@pytest.mark.hazard("two-parts-under-one-id")
def test_another_part_of_an_entry_waits_until_the_first_is_durably_acknowledged() -> None:
    """In a shared subscription it stops no other entry."""
    table = shared()
    deliver(table, 1, [0, 1])
    arrive(table, 1, [5, 6])
    arrive(table, 1, [8])
    arrive(table, 2)
    assert sent(table) == [(2, list(range(10)))]
    assert table.waiting == 3
    assert acked(table, part(1, 1)) == [10]
    assert sent(table) == []
    last = ack(table, whole(1))
    assert messages(last.acknowledge) == [11]
    assert sent(table) == [], "its acknowledgement is not durable"
    table.settled(last.ticket)
    assert sent(table) == [(1, [5, 6])]
    assert acked(table, whole(1)) == [15, 16]
    assert sent(table) == [(1, [8])]
    assert table.waiting == 0


@pytest.mark.parametrize("opened", [exclusive, key_shared], ids=["all", "keys"])
def test_where_order_is_kept_what_waits_stops_what_is_behind(opened: Callable[[], Outstanding[str]]) -> None:
    """The next message of a key must not overtake it."""
    table = opened()
    deliver(table, 1, [0, 1])
    arrive(table, 1, [5])
    arrive(table, 2)
    assert sent(table) == []
    assert acked(table, whole(1)) == [10, 11]
    assert sent(table) == [(1, [5]), (2, list(range(10)))]


def test_nothing_is_sent_above_the_limit_of_unacknowledged_messages() -> None:
    """An entry goes whole, above the limit, too; what is acknowledged makes room when that is durable."""
    table = shared(unacknowledged_max=15)
    for entry in (1, 2, 3):
        arrive(table, entry)
    assert sent(table) == [(1, list(range(10))), (2, list(range(10)))]
    decision = ack(table, whole(1))
    assert (table.blocked, sent(table)) == (True, [])
    table.settled(decision.ticket)
    assert sent(table) == [(3, list(range(10)))]


def test_what_was_given_back_is_not_counted_as_unacknowledged() -> None:
    table = shared(unacknowledged_max=15)
    deliver(table, 1)
    deliver(table, 2)
    table.redeliver([whole(1)])
    assert (table.unacknowledged, table.blocked) == (10, False)
    deliver(table, 1)
    assert table.blocked


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("mask-that-is-swallowed")
def test_masks_are_sent_only_after_the_client_has_sent_a_set() -> None:
    """The masked entry is sent whole, and costs the permits of what is shown."""
    table = shared()
    arrive(table, 1, [2, 5])
    plain = table.next()
    assert plain is not None
    assert (plain.mask, plain.sends) == ((), ((12, 12), (15, 15)))
    deliver(table, 2)
    ack(table, NamedId(5, 2, batch_index=3))
    before = table.reads_masks
    ack(table, part(2, 1))
    assert (before, table.reads_masks) == (False, True)
    arrive(table, 3, [2, 5])
    masked = table.next()
    assert masked is not None
    assert (masked.all, masked.mask, masked.messages) == (True, (0b100100,), 2)
    assert seen(masked) == (3, [2, 5])


@pytest.mark.hazard("ack-of-another-part")
def test_acknowledging_a_masked_entry_is_about_what_was_shown() -> None:
    """Hidden messages are those of another consumer."""
    table = shared()
    table.reads_masks = True
    deliver(table, 3, [2, 5, 6])
    assert acked(table, part(3, 0, 1, 3, 4, 5, 6, 7, 8, 9)) == [32]
    assert acked(table, part(3, 6, 2)) == [35]
    assert acked(table, whole(3)) == [36]


def test_encrypted_entries_are_masked_for_every_client() -> None:
    """Their parts cannot be made. It stays so when fewer of their messages come again."""
    table = shared()
    arrive(table, 1, can_be_cut=False)
    assert sent(table) == [(1, list(range(10)))]
    assert acked(table, part(1, 5, 6, 7)) == [10, 11, 12, 13, 14, 18, 19]
    table.reads_masks = False
    assert messages(table.redeliver([whole(1)]).nack) == [15, 16, 17]
    arrive(table, 1, [5, 7], can_be_cut=False)
    again = table.next()
    assert again is not None
    assert (again.all, again.mask, again.messages) == (True, (0b10100000,), 2)
    arrive(table, 2, [4], can_be_cut=False)
    other = table.next()
    assert other is not None
    assert (other.all, other.mask) == (True, (0b10000,))


# --- given back by the client -----------------------------------------------------------------------------------------


def test_redelivered_entries_are_given_back_without_what_is_acknowledged() -> None:
    """Only those that are named, once each, in the order of the log."""
    table = shared()
    for entry in (3, 1, 2):
        deliver(table, entry, [0, 1, 2])
    ack(table, part(1, 1, 2))
    given = table.redeliver([whole(3), whole(1), whole(3), whole(8), NamedId(2**64 - 1, 0)])
    assert messages(given.nack) == [11, 12, 30, 31, 32]
    assert given.later == ()
    assert table.redeliver([whole(3)]) == GivenBack(())


@pytest.mark.hazard("two-parts-under-one-id")
def test_given_back_messages_come_again_and_others_wait_for_them() -> None:
    table = shared()
    deliver(table, 1, [0, 1, 2])
    table.redeliver([whole(1)])
    arrive(table, 1, [1, 2, 5, 6])
    assert sent(table) == [(1, [1, 2])]
    assert table.waiting == 2
    assert not table.must_close
    arrive(table, 2)
    assert sent(table) == [(2, list(range(10)))]


@pytest.mark.hazard("two-parts-under-one-id")
@pytest.mark.parametrize("first_acknowledged", [False, True])
def test_other_messages_never_follow_what_was_given_back(*, first_acknowledged: bool) -> None:
    """The client may still acknowledge its first delivery, also after the second. So it must subscribe again."""
    table = shared()
    deliver(table, 1, [0, 1])
    table.redeliver([whole(1)])
    if first_acknowledged:
        deliver(table, 1, [0, 1])
        assert acked(table, whole(1)) == [10, 11]
    arrive(table, 1, [5])
    arrive(table, 2)
    assert sent(table) == []
    assert table.must_close


def test_the_rest_of_an_entry_follows_what_was_never_given_back() -> None:
    table = shared()
    deliver(table, 1, [0, 1])
    acked(table, whole(1))
    deliver(table, 1, [5])
    assert not table.must_close


def test_what_waits_for_a_given_back_entry_is_given_back_a_little_later() -> None:
    """Else it might come first, and the client would have to subscribe again. It was not sent: the owner's credit."""
    table = key_shared()
    deliver(table, 1, [0, 1])
    arrive(table, 1, [5, 6])
    arrive(table, 2)
    given = table.redeliver([whole(1)])
    assert (messages(given.nack), messages(given.later)) == ([10, 11], [15, 16])
    assert table.unsent == 2
    assert sent(table) == [(2, list(range(10)))]


@each_type
def test_everything_is_given_back_in_order_also_what_waits(opened: Callable[[], Outstanding[str]]) -> None:
    """What is acknowledged already is not, and the epoch of the client is repeated from then on."""
    table = opened()
    deliver(table, 3, [0])
    deliver(table, 1, [1, 4])
    deliver(table, 2)
    arrive(table, 4, [6])
    prepared = table.next()
    arrive(table, 5, [7])
    ack(table, whole(2))
    given = table.redeliver_all(7)
    assert messages(given.nack) == [11, 14, 30, 46, 57]
    assert (given.later, table.consumer_epoch, table.waiting, table.unsent) == ((), 7, 0, 2)
    assert prepared is not None
    assert not table.may_go(prepared)
    assert table.redeliver_all(6).nack == ()
    assert table.consumer_epoch == 7
    deliver(table, 4, [5, 6])


def test_what_is_being_acknowledged_is_not_given_back_again() -> None:
    """The owner had it sent again, before it got the acknowledgement of the first delivery."""
    table = shared()
    deliver(table, 1, [0, 1])
    table.redeliver([whole(1)])
    ack(table, part(1, 1))
    arrive(table, 1, [0])
    assert table.redeliver_all() == GivenBack(())


def test_more_ids_than_the_limit_redeliver_everything() -> None:
    """A nack that is dropped would be a message that never comes again."""
    table = shared()
    deliver(table, 1, [0])
    deliver(table, 2, [0])
    assert messages(table.redeliver([whole(1)] * 10_001).nack) == [10, 20]


def test_too_many_given_back_entries_end_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is remembered."""
    monkeypatch.setattr(outstanding, "GIVEN_BACK_MAX", 2)
    table = shared()
    for entry in (1, 2, 3):
        deliver(table, entry)
    table.redeliver([whole(1), whole(2)])
    assert not table.must_close
    table.redeliver([whole(3)])
    assert table.must_close


def test_given_back_entries_are_forgotten_when_they_are_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "GIVEN_BACK_MAX", 1)
    table = shared()
    for entry in range(1, 6):
        deliver(table, entry)
        table.redeliver([whole(entry)])
        if entry % 2:
            deliver(table, entry)
        assert len(acked(table, whole(entry))) == 10
    assert not table.must_close


# --- while bytes are made ---------------------------------------------------------------------------------------------


def test_what_is_given_back_while_its_bytes_are_made_is_not_sent() -> None:
    """And what an old delivery acknowledges meanwhile is left out."""
    table = shared()
    deliver(table, 1, [0, 1, 2])
    table.redeliver([whole(1)])
    arrive(table, 1, [0, 1, 2])
    prepared = table.next()
    assert prepared is not None
    assert table.redeliver([whole(1)]).nack == (), "it is on its way anyhow"
    assert acked(table, part(1, 1, 2)) == [10]
    assert not table.may_go(prepared)
    assert table.unsent == 1
    assert sent(table) == [(1, [1, 2])]
    assert not table.may_go(prepared), "another one was made since"


def test_an_entry_that_is_acknowledged_while_its_bytes_are_made_is_not_sent() -> None:
    table = shared()
    deliver(table, 1)
    table.redeliver([whole(1)])
    arrive(table, 1)
    prepared = table.next()
    assert prepared is not None
    assert len(acked(table, whole(1))) == 10
    assert not table.may_go(prepared)
    assert (sent(table), table.unsent, table.unacknowledged) == ([], 10, 0)


def test_bytes_that_were_made_before_a_recall_do_not_go_for_a_later_delivery() -> None:
    table = shared()
    arrive(table, 1, [0, 1])
    old = table.next()
    table.recalled([IndexRange(10, 11)])
    arrive(table, 1, [0])
    new = table.next()
    assert old is not None
    assert new is not None
    assert (table.may_go(old), table.may_go(new), table.unacknowledged) == (False, True, 1)


def test_ids_of_entries_that_were_not_sent_yet_name_nothing() -> None:
    """Their client cannot have seen them."""
    table = shared()
    arrive(table, 1)
    assert table.next() is not None
    decision = ack(table, whole(1))
    assert (decision.acknowledge, decision.ignored) == ((), 1)


# --- taken back by the owner, sought, lost ----------------------------------------------------------------------------


def test_recalled_messages_that_were_not_sent_are_dropped() -> None:
    """Those that wait, and those whose bytes are made; the rest of such an entry goes."""
    table = shared()
    arrive(table, 1, [0, 1, 2])
    prepared = table.next()
    assert prepared is not None
    arrive(table, 2, [3, 4])
    assert table.recalled([IndexRange(11, 11), IndexRange(20, 23)]) == GivenBack(())
    assert not table.may_go(prepared)
    assert sent(table) == [(1, [0, 2]), (2, [4])]
    assert table.unsent == 2


def test_what_waits_for_bytes_that_are_never_sent_goes_then() -> None:
    table = shared()
    arrive(table, 1, [0])
    assert table.next() is not None
    arrive(table, 1, [5])
    assert sent(table) == []
    table.recalled([IndexRange(10, 10)])
    assert sent(table) == [(1, [5])]


def test_recalled_messages_that_were_sent_may_be_acknowledged_or_come_again() -> None:
    table = shared()
    deliver(table, 1, [0, 1])
    deliver(table, 2, [0, 1])
    table.recalled([IndexRange(10, 21)])
    assert table.unacknowledged == 0
    assert acked(table, whole(2)) == [20, 21]
    deliver(table, 1, [0, 1])
    assert acked(table, part(1, 1)) == [10]
    assert messages(table.redeliver([whole(1)]).nack) == [11], "what was recalled is the former delivery"


def test_entries_that_are_recalled_in_part_come_again_when_the_rest_is_acknowledged() -> None:
    """What waited for them comes a little later."""
    table = shared()
    deliver(table, 1, [0, 1, 2])
    assert table.recalled([IndexRange(11, 11)]) == GivenBack(())
    arrive(table, 1, [1])
    assert sent(table) == []
    assert acked(table, part(1, 1)) == [10, 12]
    assert sent(table) == [(1, [1])]
    other = shared()
    deliver(other, 1, [0, 1])
    arrive(other, 1, [7])
    assert sent(other) == []
    assert messages(other.recalled([IndexRange(10, 19)]).later) == []
    assert other.waiting == 0, "the owner has taken it back, too"
    deliver(other, 1, [0, 1])
    arrive(other, 1, [7])
    assert sent(other) == []
    assert messages(other.recalled([IndexRange(10, 11)]).later) == [17]


@pytest.mark.hazard("seek-behind-old-messages")
@each_type
def test_after_a_seek_all_is_void(opened: Callable[[], Outstanding[str]]) -> None:
    """Nothing is given back, nothing old is sent, and old ids name nothing."""
    table = opened()
    deliver(table, 8)
    acked(table, whole(8))
    deliver(table, 1)
    arrive(table, 2)
    prepared = table.next()
    arrive(table, 3)
    waits = ack(table, whole(1), request_id=9)
    before = table.unsent
    table.sought(SeekEpoch(3))
    assert table.unsent - before == 20
    assert prepared is not None
    assert not table.may_go(prepared)
    assert arrive(table, 4) is Arrival.OLD
    assert (table.unsent - before, table.unacknowledged, sent(table)) == (30, 0, [])
    assert ack(table, whole(1), whole(8)).ignored == 2
    assert [answer.request_id for answer in table.settled(waits.ticket)] == [9]
    assert arrive(table, 1, [4], epoch=SeekEpoch(3)) is Arrival.TAKEN
    assert sent(table) == [(1, [4])]
    assert messages(ack(table, whole(1)).acknowledge) == [14]


def test_a_seek_by_somebody_else_ends_the_consumer() -> None:
    """The client shows messages of before: their acknowledgements would count for the new position."""
    table = shared()
    deliver(table, 1)
    assert arrive(table, 1, epoch=SeekEpoch(3)) is Arrival.SOUGHT
    assert table.must_close
    assert ack(table, whole(1)).ignored == 1


def test_when_another_consumer_becomes_active_all_is_void() -> None:
    table = exclusive()
    deliver(table, 1)
    arrive(table, 2)
    table.lost()
    assert sent(table) == []
    assert ack(table, whole(1)).ignored == 1
    assert ack(table, whole(1), cumulative=True).ignored == 1
    deliver(table, 1)
    assert not table.must_close


def test_after_an_acknowledgement_has_failed_the_client_must_subscribe_again() -> None:
    """It is not known what the log has."""
    table = shared()
    deliver(table, 1)
    decision = ack(table, whole(1), request_id=4)
    (answer,) = table.settled(decision.ticket, LedgerUnavailable("no storage node answers"))
    assert answer.refusal is not None
    assert (answer.request_id, answer.refusal.code) == (4, ServerError.PERSISTENCE_ERROR)
    assert table.must_close
    arrive(table, 2)
    assert sent(table) == []


@pytest.mark.hazard("ack-of-the-unreadable")
def test_what_a_client_cannot_read_comes_again() -> None:
    """All that it had of the entry, and what waits for it; its answer is an error."""
    table = shared()
    deliver(table, 1, [0, 1])
    arrive(table, 1, [4])
    assert sent(table) == []
    decision = table.acknowledge(AckAsked([whole(1), whole(1), whole(2)], request_id=3, unreadable=True))
    assert (decision.acknowledge, messages(decision.nack)) == ((), [10, 11, 14])
    assert (decision.unreadable, decision.ignored) == (1, 1)
    (answer,) = decision.answers
    assert answer.refusal is not None
    assert answer.refusal.code is ServerError.NOT_ALLOWED_ERROR
    assert (table.reads_masks, table.waiting) == (False, 0)
    deliver(table, 1, [0, 1])


@pytest.mark.hazard("ack-of-the-unreadable")
def test_policy_acknowledges_what_a_client_cannot_read() -> None:
    """As any other acknowledgement, but it is counted."""
    table = shared()
    deliver(table, 1, [0, 1])
    asked = AckAsked([whole(1), whole(1), whole(2)], request_id=3, unreadable=True, acks_unreadable=True)
    decision = table.acknowledge(asked)
    assert (messages(decision.acknowledge), decision.nack) == ([10, 11], ())
    assert (decision.unreadable, decision.ignored) == (1, 1)
