"""What an acknowledgement of a client of Pulsar is in the log, and when it is answered."""

from collections.abc import Callable, Sequence

import pytest

from oncelog.core.errors import LedgerUnavailable, StaleSeekEpoch
from oncelog_doors.core.pulsar.consuming import outstanding
from oncelog_doors.core.pulsar.consuming.acknowledgements import IDS_MAX, AckAnswers, AckAsked, NamedId
from oncelog_doors.core.pulsar.consuming.outstanding import Outstanding
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from tests.doors.core.pulsar.consuming.consumer_stories import (
    ack,
    acked,
    arrive,
    deliver,
    exclusive,
    key_shared,
    messages,
    part,
    sent,
    shared,
    whole,
)

ALL = list(range(10, 20))
NOWHERE = 2**64 - 1


def code(refusal: Refusal | None) -> ServerError | None:
    return None if refusal is None else refusal.code


# --- single entries ---------------------------------------------------------------------------------------------------


@pytest.mark.hazard("ack-of-another-part")
def test_an_id_means_what_this_consumer_was_sent_under_it() -> None:
    table = key_shared()
    deliver(table, 1, [2, 3, 7])
    assert acked(table, whole(1)) == [12, 13, 17]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (NamedId(5, 1), ALL),
        (NamedId(5, 1, batch_size=10), ALL),
        (NamedId(5, 1, batch_size=-1), ALL),
        (NamedId(5, 1, 3), [13]),
        (NamedId(5, 1, 3, batch_size=10), [13]),
        (NamedId(5, 1, ack_set=(0b1111111110,)), [10]),
        (NamedId(5, 1, ack_set=(0b0111111111,), batch_size=10), [19]),
        (NamedId(5, 1, ack_set=(0b0000000111,)), [13, 14, 15, 16, 17, 18, 19]),
        (NamedId(5, 1, ack_set=(0,)), ALL),
        (NamedId(5, 1, ack_set=(0b1111111011, 0, 0)), [12]),
        (NamedId(5, 1, 4, (0b1111111011,)), [12]),
        (NamedId(5, 1, ack_set=(0b1111111111,)), []),
    ],
)
def test_a_bit_that_is_set_is_a_message_that_is_not_acknowledged(named: NamedId, expected: list[int]) -> None:
    """Words that are missing at the end are 0. Without a set it is everything, or the one message that is named."""
    table = shared()
    deliver(table, 1)
    decision = ack(table, named)
    assert (messages(decision.acknowledge), decision.ignored) == (expected, 0)


@pytest.mark.parametrize(
    "named",
    [
        NamedId(5, 1, ack_set=(-1,)),
        NamedId(5, 1, ack_set=(2**10,)),
        NamedId(5, 1, ack_set=(2**63,)),
        NamedId(5, 1, ack_set=(0, 1)),
        NamedId(5, 1, ack_set=(0,) * 1025),
        NamedId(5, 1, ack_set=(0,), batch_size=9),
        NamedId(5, 1, batch_size=11),
        NamedId(5, 1, 10),
        NamedId(5, 1, 2**31 - 1),
        NamedId(5, 2),
        NamedId(6, 1),
        NamedId(NOWHERE, NOWHERE),
        NamedId(-1, -1),
        NamedId(5, NOWHERE),
        NamedId(2**63 - 1, 1),
    ],
)
def test_ids_that_contradict_what_was_sent_are_ignored(named: NamedId) -> None:
    """A set of another size, or an id that names nothing: nothing is guessed. The answer says that it comes again."""
    table = shared()
    deliver(table, 1)
    decision = ack(table, named, request_id=8)
    assert (decision.acknowledge, decision.ticket, decision.ignored) == ((), 0, 1)
    ((request_id, refusal),) = decision.answers
    assert (request_id, code(refusal)) == (8, ServerError.CONSUMER_NOT_FOUND)
    assert acked(table, whole(1)) == ALL


def test_a_message_is_acknowledged_once_however_often_it_is_named() -> None:
    """In one command, or while the first acknowledgement is on its way."""
    table = shared()
    deliver(table, 1)
    deliver(table, 2)
    first = ack(table, part(1, 1, 2, 3), whole(2), part(1, 2), whole(2), part(1, 1, 2, 3))
    assert messages(first.acknowledge) == [10, 11, 13, *range(14, 20), *range(20, 30)]
    second = ack(table, whole(1), whole(2))
    assert (messages(second.acknowledge), second.ignored) == ([12], 0)
    table.settled(second.ticket)
    table.settled(first.ticket)
    assert table.unacknowledged == 0


def test_what_is_not_acknowledged_in_the_log_is_what_was_left() -> None:
    """Sets of Go count from the last flush: bits of messages that it has acknowledged before are set again."""
    table = shared()
    deliver(table, 1)
    assert acked(table, part(1, *range(1, 10))) == [10]
    assert acked(table, part(1, 0, *range(2, 10))) == [11]
    assert messages(table.redeliver([whole(1)]).nack) == list(range(12, 20))


# --- former deliveries ------------------------------------------------------------------------------------------------


@pytest.mark.hazard("two-parts-under-one-id")
def test_what_was_given_back_may_still_be_acknowledged() -> None:
    """As on Pulsar, when an application acknowledges after its time-out. It is not sent again then."""
    table = shared()
    deliver(table, 1)
    table.redeliver([whole(1)])
    decision = ack(table, whole(1))
    assert (messages(decision.acknowledge), table.unacknowledged) == (ALL, 10)
    arrive(table, 1)
    assert sent(table) == []
    table.settled(decision.ticket)
    assert (sent(table), table.waiting, table.unsent, table.must_close) == ([], 0, 10, False)
    assert table.unacknowledged == 0


@pytest.mark.hazard("two-parts-under-one-id")
def test_a_late_acknowledgement_of_a_former_delivery_is_about_no_more_than_the_newest() -> None:
    """Of three messages one came again: the others are another consumer's by now."""
    table = shared()
    deliver(table, 1, [0, 1, 2])
    table.redeliver([whole(1)])
    deliver(table, 1, [1])
    assert acked(table, whole(1)) == [11]


@pytest.mark.hazard("two-parts-under-one-id")
def test_a_set_that_may_count_another_delivery_is_ignored() -> None:
    """The first delivery had three messages, the second has two of them: bit 1 is another message in each."""
    table = shared()
    deliver(table, 1, [0, 1, 2])
    table.redeliver([whole(1)])
    deliver(table, 1, [0, 2])
    for unclear in (part(1, 1), NamedId(5, 1, 1), part(1, 1, batch_size=3)):
        assert ack(table, unclear).ignored == 1
    assert acked(table, part(1, 1, batch_size=2)) == [10]
    assert acked(table, whole(1)) == [12]


def test_for_a_client_that_reads_masks_the_numbers_of_messages_stay() -> None:
    """So the sets of all deliveries mean the same messages."""
    table = shared()
    table.reads_masks = True
    arrive(table, 1)
    assert len(sent(table)) == 1
    table.redeliver([whole(1)])
    arrive(table, 1, [0, 2, 4])
    again = table.next()
    assert again is not None
    assert (again.mask, again.all) == ((0b10101,), True)
    assert table.may_go(again)
    assert acked(table, part(1, *(bit for bit in range(10) if bit != 2))) == [12]


def test_acknowledging_again_what_is_durable_is_no_error() -> None:
    """Of the last entries; what this connection never had is one."""
    table = shared()
    deliver(table, 1)
    assert acked(table, whole(1)) == ALL
    decision = ack(table, whole(1))
    assert (decision.acknowledge, decision.ignored) == ((), 0)
    assert [code(answer.refusal) for answer in decision.answers] == [None]


def test_the_memory_of_acknowledged_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "RECENT_MAX", 2)
    table = shared()
    for entry in (1, 2, 3):
        deliver(table, entry)
        acked(table, whole(entry))
    assert [ack(table, whole(entry)).ignored for entry in (1, 2, 3)] == [1, 0, 0]


# --- cumulative -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (whole(3), range(10, 40)),
        (NamedId(5, 3, ack_set=(0b1111111000,)), range(10, 33)),
        (NamedId(5, 3, 2), range(10, 33)),
        (whole(2), range(10, 30)),
        (whole(0), ()),
        (whole(4), range(10, 50)),
        (whole(5), range(10, 60)),
    ],
)
def test_cumulative_acknowledgements_reach_up_to_the_named_message(named: NamedId, expected: Sequence[int]) -> None:
    """Entry 4 comes after 5. Clients name the entry before, while a batch is not complete: that may be none of ours."""
    table = exclusive()
    for entry in (1, 2, 3, 5, 4):
        deliver(table, entry)
    decision = ack(table, named, cumulative=True)
    assert decision.ignored == 0
    assert messages(decision.acknowledge) == list(expected)


def test_clients_name_the_place_in_front_of_the_first_entry_of_a_ledger() -> None:
    """As 2**64 - 1. All former ledgers are acknowledged, and nothing of this one."""
    table = exclusive()
    arrive(table, 1, ledger=4)
    arrive(table, 0, ledger=5)
    assert len(sent(table)) == 2
    for entry_id in (NOWHERE, -1):
        decision = ack(table, NamedId(5, entry_id), cumulative=True)
        assert decision.ignored == 0
        assert messages(decision.acknowledge) == (ALL if entry_id == NOWHERE else [])


@pytest.mark.parametrize("named", [whole(9), NamedId(4, 9), NamedId(6, 0), NamedId(NOWHERE, NOWHERE), NamedId(5, 1)])
def test_cumulative_acknowledgements_of_a_former_connection_are_ignored(named: NamedId) -> None:
    """They are in front of all that was sent, or behind it. What was sent stays."""
    table = exclusive()
    assert ack(table, named, cumulative=True).ignored == 1
    deliver(table, 3)
    deliver(table, 4)
    decision = ack(table, named, cumulative=True)
    assert (decision.acknowledge, decision.ignored) == ((), 1)
    assert [code(answer.refusal) for answer in decision.answers] == [ServerError.CONSUMER_NOT_FOUND]


def test_cumulative_acknowledgements_leave_what_was_given_back() -> None:
    """The client has asked for it again. And what is still being made ready."""
    table = exclusive()
    for entry in (1, 2, 3):
        deliver(table, entry)
    arrive(table, 0)
    assert table.next() is not None
    table.redeliver([whole(2)])
    assert acked(table, whole(3), cumulative=True) == [*range(10, 20), *range(30, 40)]


def test_a_cumulative_acknowledgement_that_contradicts_its_entry_reaches_up_to_it() -> None:
    table = exclusive()
    deliver(table, 1)
    deliver(table, 2)
    decision = ack(table, part(2, 11), cumulative=True)
    assert (messages(decision.acknowledge), decision.ignored) == (ALL, 1)


# --- commands that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opened", "asked", "field"),
    [
        (shared, AckAsked([whole(1)] * (IDS_MAX + 1), request_id=1), "10000"),
        (shared, AckAsked([whole(1)], cumulative=True, request_id=1), "exclusive or failover"),
        (key_shared, AckAsked([whole(1)], cumulative=True, request_id=1), "exclusive or failover"),
        (exclusive, AckAsked([whole(1)] * 2, cumulative=True, request_id=1), "name one"),
        (exclusive, AckAsked([], cumulative=True, request_id=1), "name one"),
    ],
)
def test_whole_commands_are_refused_with_the_limit(
    opened: Callable[[], Outstanding[str]], asked: AckAsked, field: str
) -> None:
    """Nothing of them is done."""
    table = opened()
    deliver(table, 1)
    decision = table.acknowledge(asked)
    (answer,) = decision.answers
    assert answer.refusal is not None
    assert answer.refusal.code is ServerError.NOT_ALLOWED_ERROR
    assert field in answer.refusal.sentence
    assert (decision.acknowledge, decision.ignored) == ((), len(asked.ids))
    assert table.acknowledge(asked._replace(request_id=None)).answers == ()


def test_as_many_ids_as_the_limit_are_taken() -> None:
    table = shared()
    deliver(table, 1)
    assert messages(ack(table, *[whole(1)] * IDS_MAX).acknowledge) == ALL


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_command_is_answered_once_when_all_its_parts_are_durable() -> None:
    """Also those that a former command acknowledges."""
    table = shared()
    deliver(table, 1)
    deliver(table, 2)
    first = ack(table, whole(1), request_id=5)
    second = ack(table, whole(1), whole(2), request_id=6)
    repeated = ack(table, whole(1), request_id=7)
    silent = ack(table, whole(1), request_id=None)
    assert (first.answers, second.answers, repeated.answers, silent.answers) == ((), (), (), ())
    assert table.settled(second.ticket) == []
    assert table.settled(first.ticket) == [(5, None), (6, None), (7, None)]
    assert table.settled(first.ticket) == []


def test_a_command_that_waits_for_nothing_is_answered_at_once() -> None:
    assert ack(shared(), request_id=3).answers == ((3, None),)


def test_the_first_error_of_a_command_is_its_answer() -> None:
    """An id that names nothing is known first; the answer still waits for the others."""
    table = shared()
    deliver(table, 1)
    decision = ack(table, whole(1), whole(4), request_id=5)
    assert (messages(decision.acknowledge), decision.answers) == (ALL, ())
    (answer,) = table.settled(decision.ticket, LedgerUnavailable("away"))
    assert code(answer.refusal) is ServerError.CONSUMER_NOT_FOUND
    answers = AckAnswers()
    answers.open(1, (10, 11), None)
    assert answers.settled(11, Refusal(ServerError.PERSISTENCE_ERROR, "first")) == []
    assert answers.settled(10, Refusal(ServerError.UNKNOWN_ERROR, "second")) == [
        (1, Refusal(ServerError.PERSISTENCE_ERROR, "first"))
    ]


def test_an_acknowledgement_in_memory_alone_is_not_confirmed() -> None:
    """But the message is not sent again, and the consumer goes on."""
    table = shared()
    deliver(table, 1)
    decision = ack(table, whole(1), request_id=5)
    (answer,) = table.settled(decision.ticket, durable=False)
    assert code(answer.refusal) is ServerError.PERSISTENCE_ERROR
    assert (table.must_close, table.unacknowledged) == (False, 0)


def test_errors_of_the_log_become_those_of_pulsar() -> None:
    table = shared()
    deliver(table, 1)
    decision = ack(table, whole(1), request_id=5)
    (answer,) = table.settled(decision.ticket, StaleSeekEpoch("sought"))
    assert answer.refusal is not None
    assert "sought" in answer.refusal.sentence
