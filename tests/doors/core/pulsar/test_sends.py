"""How a client learns that one of its SENDs failed, and in which order it gets its answers."""

from random import Random

import pytest

from oncelog.core import errors
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.due_refusals import DueRefusals, addressee
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.openings import ProducerOpening, ProducerRequest, Refuse, Succeed
from oncelog_doors.core.pulsar.sends import CloseProducer, SendEffect, Sends, WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected

each_family = pytest.mark.parametrize("family", ClientFamily)
OTHERS = [family for family in ClientFamily if family is not ClientFamily.JAVA]
each_other_family = pytest.mark.parametrize("family", OTHERS)
PLACE = Position(LedgerId(5), EntryId(6))
BATCH = Ids(10, 19)
FAILED = Rejected("another message is stored under the id")
FAILS_ALL = Refusal(ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION, FAILED.sentence)
TOKEN = 2**40


def codes(effects: list[SendEffect]) -> list[int]:
    """Of the errors among them."""
    return [effect.refusal.code for effect in effects if isinstance(effect, WriteSendError)]


# --- receipts ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("receipt-out-of-order")
@each_family
@pytest.mark.parametrize("seed", range(20))
def test_receipts_have_the_order_of_the_sends(family: ClientFamily, seed: int) -> None:
    """Whatever is decided first: a duplicate at once, a write later."""
    random = Random(seed)
    sends = Sends(family)
    open_numbers: list[int] = []
    receipts: list[Ids] = []
    sent: list[Ids] = []
    while len(sent) < 200 or open_numbers:
        if len(sent) < 200 and random.random() < 0.5:
            sent.append(Ids(len(sent)))
            open_numbers.append(sends.taken(sent[-1]))
        elif open_numbers:
            number = open_numbers.pop(random.randrange(len(open_numbers)))
            effects = sends.decided(number, Accepted(PLACE))
            receipts += [effect.ids for effect in effects if isinstance(effect, WriteReceipt)]
            assert sends.waiting == len(sent) - len(receipts)
    assert receipts == sent


@each_family
@pytest.mark.parametrize("ids", [Ids(7), Ids(7, 7), BATCH, Ids(7, 0)])
def test_receipt_repeats_the_ids_as_they_were_sent(family: ClientFamily, ids: Ids) -> None:
    """Without a highest id where there was none: Java closes its connection for another one."""
    sends = Sends(family)
    number = sends.taken(ids)
    assert sends.decided(number, Accepted(PLACE)) == [WriteReceipt(ids, PLACE)]


@each_family
def test_error_waits_for_the_receipts_before_it(family: ClientFamily) -> None:
    """A client takes it for the head of its queue."""
    sends = Sends(family)
    first, second = sends.taken(Ids(1)), sends.taken(Ids(2))
    assert sends.decided(second, FAILED) == []
    receipt, error = sends.decided(first, Accepted(PLACE))
    assert receipt == WriteReceipt(Ids(1), PLACE)
    assert isinstance(error, WriteSendError | CloseProducer)


# --- dialects ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("refusal-names-the-lowest-id", "refusal-resent-for-ever")
@pytest.mark.parametrize(("ids", "named"), [(BATCH, 19), (Ids(7), 7), (Ids(7, 0), 7), (Ids(9, 9), 9)])
def test_java_fails_the_batch_that_is_named_by_its_highest_id(ids: Ids, named: int) -> None:
    """With 22: with 9 it sends again for ever. The producer goes on."""
    sends = Sends(ClientFamily.JAVA)
    number, behind = sends.taken(ids), sends.taken(Ids(30))
    [error] = sends.decided(number, FAILED)
    assert error == WriteSendError(named, Refusal(ServerError.NOT_ALLOWED_ERROR, FAILED.sentence))
    assert sends.takes
    assert sends.decided(behind, Accepted(PLACE)) == [WriteReceipt(Ids(30), PLACE)]


@pytest.mark.hazard("send-error-closes-a-connection", "send-error-kills-the-client", "send-error-silences-a-producer")
@each_other_family
def test_all_others_are_closed_and_fail_what_is_pending(family: ClientFamily) -> None:
    """No SEND_ERROR: with 9 the C++ library may die, with 22 or 15 the Go client never sends again, with any other code
    all producers of the connection send again, for ever. The 8 that is due fails what is pending, and nothing else."""
    sends = Sends(family)
    number = sends.taken(BATCH)
    assert sends.decided(number, FAILED) == [CloseProducer(FAILS_ALL)]
    assert sends.closed


@each_family
@pytest.mark.parametrize("seed", range(10))
def test_no_send_error_but_22_to_java_is_ever_written(family: ClientFamily, seed: int) -> None:
    """In random histories with verdicts and ends of all kinds."""
    random = Random(seed)
    ends = [error("x") for error in errors.BY_CODE.values()]
    for _ in range(50):
        sends = Sends(family)
        effects: list[SendEffect] = []
        for number in range(random.randrange(1, 20)):
            if sends.takes:
                taken = sends.taken(Ids(number))
                effects += sends.decided(taken, random.choice((Accepted(PLACE), Accepted(), FAILED)))
        effects += sends.ended(random.choice(ends))
        assert set(codes(effects)) <= ({22} if family is ClientFamily.JAVA else set())
        assert sum(isinstance(effect, CloseProducer) for effect in effects) == 1


@each_other_family
def test_nothing_is_handed_over_behind_a_refusal(family: ClientFamily) -> None:
    """From the moment of the verdict on, although the error waits for a receipt: the client fails what it has sent."""
    sends = Sends(family)
    first, second = sends.taken(Ids(1)), sends.taken(Ids(2))
    sends.decided(second, FAILED)
    assert not sends.takes
    with pytest.raises(InvariantViolated):
        sends.taken(Ids(3))
    assert sends.decided(first, Accepted()) == [WriteReceipt(Ids(1), None), CloseProducer(FAILS_ALL)]


@each_other_family
def test_what_was_handed_over_before_is_not_answered_after_the_close(family: ClientFamily) -> None:
    """It may be stored. Its receipt would be taken for one of the next opening."""
    sends = Sends(family)
    first, second = sends.taken(Ids(1)), sends.taken(Ids(2))
    assert sends.decided(first, FAILED) == [CloseProducer(FAILS_ALL)]
    assert sends.decided(second, Accepted(PLACE)) == []
    assert sends.waiting == 0


def test_no_send_is_judged_twice() -> None:
    """A bug of the door, and the end of its process: a receipt would be another batch's."""
    sends = Sends(ClientFamily.JAVA)
    sends.taken(Ids(1))
    second = sends.taken(Ids(2))
    sends.decided(second, Accepted())
    with pytest.raises(InvariantViolated):
        sends.decided(second, Accepted())


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("fenced-producer-reconnects")
@each_family
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ProducerFenced("x"), 25),
        (errors.PermissionDenied("x"), 4),
        (errors.TopicNotFound("x"), 11),
    ],
    ids=["fenced", "rights", "deleted"],
)
def test_next_producer_learns_from_the_log_why_it_was_closed(
    family: ClientFamily, error: OncelogError, code: int
) -> None:
    """Nothing is due, so any door says it. Only 25 stops a fenced producer: 16, 6 and 4 are tried again for ever."""
    sends = Sends(family)
    sends.taken(Ids(1))
    assert sends.ended(error) == [CloseProducer(None)]
    assert sends.ended(error) == []
    opening = ProducerOpening(ProducerRequest(epoch=2, token=TOKEN), family, 0)
    opening.begin()
    assert opening.refused(error) == [Refuse(Refusal(ServerError(code), "x"))]


@each_family
def test_quota_fails_what_is_pending(family: ClientFamily) -> None:
    """As on Pulsar. The quota may be free again when the producer comes back, so the error is due."""
    sends = Sends(family)
    sends.taken(Ids(1))
    due = Refusal(ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION, "x")
    assert sends.ended(errors.BacklogQuotaExceeded("x")) == [CloseProducer(due)]


@each_family
def test_dropped_producer_owes_nothing(family: ClientFamily) -> None:
    """What it sent is pending at the client, and comes again."""
    sends = Sends(family)
    number = sends.taken(Ids(1))
    assert sends.dropped() == [CloseProducer(None)]
    assert sends.decided(number, Accepted(PLACE)) == []


# --- what is due ------------------------------------------------------------------------------------------------------


def outcome(opening: ProducerOpening, due: Refusal | None) -> list[object]:
    effects = [*opening.begin(due), *opening.granted("importer", 7, TOKEN)]  # type: ignore[arg-type]
    return [
        effect.refusal.code if isinstance(effect, Refuse) else effect
        for effect in effects
        if isinstance(effect, Refuse | Succeed)
    ]


@each_other_family
def test_refused_producer_gets_8_once_and_then_goes_on(family: ClientFamily) -> None:
    """The whole way: the refusal, the next PRODUCER, and the one after it."""
    due = DueRefusals()
    sends = Sends(family)
    [closed] = sends.decided(sends.taken(BATCH), FAILED)
    assert isinstance(closed, CloseProducer)
    assert closed.due is not None
    who = addressee("public/default/orders", TOKEN, connection=1, producer_id=1)
    due.add(who, closed.due, 1000)
    opened = ProducerRequest(epoch=2, token=TOKEN)
    assert outcome(ProducerOpening(opened, family, 2000), due.take(who, 2000)) == [8]
    again = outcome(ProducerOpening(opened, family, 3000), due.take(who, 3000))
    assert again == [Succeed("importer", 7, TOKEN)]  # type: ignore[arg-type]
    assert len(due) == 0


def test_refusal_is_due_to_one_producer_and_not_to_a_name() -> None:
    """Another instance of the name has another token, another connection another client."""
    due = DueRefusals()
    mine = addressee("orders", TOKEN, connection=1, producer_id=1)
    due.add(mine, FAILS_ALL, 0)
    others = [
        addressee("orders", TOKEN + 2**31, connection=1, producer_id=1),
        addressee("returns", TOKEN, connection=1, producer_id=1),
        addressee("orders", 0, connection=1, producer_id=1),
    ]
    assert [due.take(who, 1) for who in others] == [None] * 3
    assert addressee("orders", TOKEN, connection=9, producer_id=4) == mine
    assert due.take(mine, 1) == FAILS_ALL


def test_client_without_tokens_is_known_by_its_connection() -> None:
    """It would send the batch again, and be refused again, for ever."""
    due = DueRefusals()
    mine = addressee("orders", 0, connection=1, producer_id=3)
    due.add(mine, FAILS_ALL, 0)
    for connection, producer_id in ((1, 4), (2, 3)):
        assert due.take(addressee("orders", 0, connection=connection, producer_id=producer_id), 1) is None
    assert due.take(mine, 1) == FAILS_ALL


def test_refusal_is_due_for_a_minute() -> None:
    """Later the batch that comes again is refused again."""
    due = DueRefusals()
    due.add("a", FAILS_ALL, 0)
    due.add("b", FAILS_ALL, 0)
    assert due.take("a", 59_999) == FAILS_ALL
    assert due.take("b", 60_000) is None


def test_refusals_are_bounded() -> None:
    """The oldest ones go first, and those that are over."""
    due = DueRefusals()
    for number in range(10_050):
        due.add(number, FAILS_ALL, number)
    assert len(due) == 10_000
    assert due.take(49, 10_050) is None
    assert due.take(50, 10_050) == FAILS_ALL
    due.add("late", FAILS_ALL, 100_000)
    assert len(due) == 1
