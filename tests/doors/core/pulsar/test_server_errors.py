"""Codes of errors, and sentences that no client takes for a code."""

import pytest

from oncelog.core import errors
from oncelog.core.names import parse_topic
from oncelog_doors.core.pulsar.server_errors import (
    SENTENCE_CHARACTERS_MAX,
    Refusal,
    ServerError,
    refusal_of,
    without_error_names,
)


@pytest.mark.hazard("error-name-in-a-sentence")
@pytest.mark.parametrize("code", ServerError, ids=lambda code: code.wire_name)
def test_sentence_has_no_name_of_an_error(code: ServerError) -> None:
    """A topic may be called so, and the sentence names the topic."""
    sentence = without_error_names(f"topic public/default/{code.wire_name}-{code.wire_name} is away: try again")
    assert [each.wire_name for each in ServerError if each.wire_name in sentence] == []
    assert sentence.startswith("topic public/default/")


def test_names_are_those_of_the_protocol() -> None:
    """The Go client searches for these: [G] producer_partition.go, consumer_partition.go."""
    searched = {
        "TopicNotFound", "TopicTerminatedError", "ProducerBlockedQuotaExceededException", "ProducerFenced",
        "SubscriptionNotFound", "AuthorizationError", "ConsumerBusy", "InvalidTopicName", "IncompatibleSchema",
        "ConsumerAssignError", "NotAllowedError",
    }  # fmt: skip
    assert searched <= {code.wire_name for code in ServerError}


def test_sentence_is_bounded() -> None:
    """A hostile name does not become a frame."""
    assert len(without_error_names("x" * 5000)) == SENTENCE_CHARACTERS_MAX
    assert without_error_names("a short one") == "a short one"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Unauthenticated("x"), 3),
        (errors.PermissionDenied("x"), 4),
        (errors.TopicNotFound("x"), 11),
        (errors.NamespaceNotFound("x"), 11),
        (errors.ProducerBusy("x"), 16),
        (errors.ProducerFenced("x"), 25),
        (errors.BacklogQuotaExceeded("x"), 8),
        (errors.ConsumerBusy("x"), 5),
        (errors.SubscriptionTypeMismatch("x"), 5),
        (errors.SubscriptionNotFound("x"), 12),
        (errors.SubscriptionGone("x"), 12),
        (errors.Conflict("x"), 22),
        (errors.TopicLoading("x"), 2),
        (errors.NotEnoughStorageNodes("x"), 2),
        (errors.TooManyRequests("x"), 2),
        (errors.InvalidName("x", field="producer_name"), 22),
        (errors.ModeMismatch("x"), 22),
        (errors.LimitReached("x"), 22),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_becomes_the_code(error: errors.OncelogError, code: int) -> None:
    """2 is tried again, 25 stops; ProducerBusy is Retriable and has its own code nevertheless."""
    assert refusal_of(error) == Refusal(ServerError(code), "x")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "/b/c", "a//c", "a/b/c/d"])
def test_invalid_name_of_a_topic_is_17(name: str) -> None:
    """Also that of its tenant or namespace."""
    with pytest.raises(errors.InvalidName) as caught:
        parse_topic(name)
    assert refusal_of(caught.value).code is ServerError.INVALID_TOPIC_NAME


def test_no_error_becomes_14() -> None:
    """It ends a producer of the C++ library."""
    assert len(errors.BY_CODE) > 50
    assert [
        error for error in errors.BY_CODE.values() if refusal_of(error("x")).code is ServerError.TOO_MANY_REQUESTS
    ] == []
