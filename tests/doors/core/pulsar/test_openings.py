"""One PRODUCER until its answer, for each meaning of its token."""

import pytest

from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog.core.ids import SequenceId
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.openings import (
    AskOwner,
    OpeningEffect,
    ProducerOpening,
    ProducerRequest,
    Refuse,
    Succeed,
)
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError

TOKEN, NEW_TOKEN = 2**40, 2**41
FIRST, AGAIN = ProducerRequest(epoch=0), ProducerRequest(epoch=3, token=TOKEN)
GRANTED = Succeed("importer", SequenceId(7), NEW_TOKEN)
each_family = pytest.mark.parametrize("family", ClientFamily)


def granted(opening: ProducerOpening) -> list[OpeningEffect]:
    return opening.granted("importer", SequenceId(7), NEW_TOKEN)


@each_family
@pytest.mark.parametrize("request_", [FIRST, AGAIN], ids=["absent", "present"])
def test_owner_is_asked_with_token_and_epoch(family: ClientFamily, request_: ProducerRequest) -> None:
    """A family that is not known to count gives no epoch: then the later request wins."""
    opening = ProducerOpening(request_, family, 0)
    epoch = None if family is ClientFamily.UNKNOWN else request_.epoch
    assert opening.begin() == [AskOwner(request_.token, epoch)]
    assert granted(opening) == [GRANTED]


@each_family
@pytest.mark.parametrize(
    ("token", "error", "code"),
    [
        (0, errors.ProducerBusy("x"), 16),
        (TOKEN, errors.ProducerFenced("older"), 25),
        (TOKEN, errors.ProducerFenced("its epoch is not above"), 25),
        (0, errors.ProducerFenced("x"), 25),
        (TOKEN, errors.PermissionDenied("x"), 4),
        (TOKEN, errors.NotEnoughStorageNodes("x"), 2),
    ],
    ids=["absent-and-held", "older", "late-epoch", "fenced", "rights", "storage-away"],
)
def test_refusal_of_the_owner_has_its_code(family: ClientFamily, token: int, error: OncelogError, code: int) -> None:
    """16 is fatal while a producer is created; 25 stops one that was created. Neither may stand for the other."""
    opening = ProducerOpening(ProducerRequest(epoch=1, token=token), family, 0)
    opening.begin()
    assert opening.refused(error) == [Refuse(Refusal(ServerError(code), str(error)))]
    assert opening.answered


@pytest.mark.hazard("token-of-a-deleted-topic")
@each_family
def test_token_of_another_topic_or_producer_makes_a_new_instance(family: ClientFamily) -> None:
    """The topic was deleted and made again, or the name has expired: the client gets what the new one has."""
    opening = ProducerOpening(AGAIN, family, 0)
    opening.begin()
    [asked] = opening.refused(errors.ProducerExpired("x"))
    assert isinstance(asked, AskOwner)
    assert asked.token == 0
    assert opening.granted("importer", SequenceId(-1), NEW_TOKEN) == [Succeed("importer", SequenceId(-1), NEW_TOKEN)]


@each_family
def test_token_is_given_up_once(family: ClientFamily) -> None:
    """An owner that says it of a request without one is not asked for ever."""
    opening = ProducerOpening(AGAIN, family, 0)
    opening.begin()
    opening.refused(errors.ProducerExpired("x"))
    assert opening.refused(errors.ProducerExpired("x")) == [Refuse(Refusal(ServerError.NOT_ALLOWED_ERROR, "x"))]


@each_family
def test_created_producer_is_answered_with_2_after_20_s(family: ClientFamily) -> None:
    """Before it gives up, after 30 s. All families try again then; while a producer is created, Go would not."""
    opening = ProducerOpening(AGAIN, family, 1000)
    assert opening.deadline_ms == 21_000
    opening.begin()
    [refused] = opening.expired()
    assert isinstance(refused, Refuse)
    assert refused.refusal.code == 2
    assert ProducerOpening(FIRST, family, 1000).deadline_ms is None


@each_family
def test_request_is_answered_once(family: ClientFamily) -> None:
    """What comes after the answer is dropped."""
    opening = ProducerOpening(AGAIN, family, 0)
    opening.begin()
    assert granted(opening) == [GRANTED]
    assert granted(opening) == []
    assert opening.refused(errors.ProducerFenced("x")) == []
    assert opening.expired() == []


@each_family
def test_what_is_due_comes_first(family: ClientFamily) -> None:
    """The owner is not asked: a session would fence nothing, and end at once."""
    due = Refusal(ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION, "x")
    opening = ProducerOpening(AGAIN, family, 0)
    assert opening.begin(due) == [Refuse(due)]
    assert opening.answered


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ProducerRequest(0, shared=False), "Shared"),
        (ProducerRequest(0, transactions=True), "transactions"),
    ],
)
def test_what_is_not_offered_is_refused_with_22(request_: ProducerRequest, said: str) -> None:
    """And the owner is not asked."""
    [refused] = ProducerOpening(request_, ClientFamily.JAVA, 0).begin()
    assert isinstance(refused, Refuse)
    assert refused.refusal.code == 22
    assert said in refused.refusal.sentence
