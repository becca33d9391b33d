"""Pulsar's error codes, and the code that an error of Oncelog becomes.

A client decides by the code whether it tries again. After a producer was created once, all clients retry every code but
25, 15 and, in Java and Go, 11. So 25 is for what must stop, and 2 for what passes. 14 is never used: it ends a producer
of the C++ library.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from oncelog.core.errors import (
    BacklogQuotaExceeded,
    ConsumerBusy,
    InvalidName,
    NotFound,
    OncelogError,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    Retriable,
    SubscriptionGone,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    Unauthenticated,
)
from oncelog_doors.core.pulsar.schemas import IncompatibleSchema

SENTENCE_CHARACTERS_MAX = 1000


class ServerError(IntEnum):
    """Numbers of Pulsar's protocol. The names in upper case are Pulsar's names: see `without_error_names`."""

    UNKNOWN_ERROR = 0
    METADATA_ERROR = 1
    PERSISTENCE_ERROR = 2
    AUTHENTICATION_ERROR = 3
    AUTHORIZATION_ERROR = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM_ERROR = 9
    UNSUPPORTED_VERSION_ERROR = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED_ERROR = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN_ERROR = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED_ERROR = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25

    @property
    def wire_name(self) -> str:
        """As clients write it into their logs and errors: ProducerFenced."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that fails. sentence: what failed, with the value and the limit, and what to do."""

    code: ServerError
    sentence: str


#: {name of a code: its words}, longer names first, because one name may begin with another
_WORDS = {
    each.wire_name: each.name.title().replace("_", " ")
    for each in sorted(ServerError, key=lambda code: (-len(code.wire_name), code))
}
_ERROR_NAME = re.compile("|".join(_WORDS))


def without_error_names(sentence: str) -> str:
    """The sentence for a client, at most 1,000 characters. The Go client searches the whole text of an error for names
    of errors, and ends a producer or consumer whose topic is called ProducerFenced; so the names
    are written as separate words."""
    spaced = _ERROR_NAME.sub(lambda match: _WORDS[match[0]].lower(), sentence)
    return spaced if len(spaced) <= SENTENCE_CHARACTERS_MAX else f"{spaced[: SENTENCE_CHARACTERS_MAX - 1]}…"


#: The first class that an error belongs to decides.
_CODES: tuple[tuple[type[OncelogError], ServerError], ...] = (
    (Unauthenticated, ServerError.AUTHENTICATION_ERROR),
    (PermissionDenied, ServerError.AUTHORIZATION_ERROR),
    (IncompatibleSchema, ServerError.INCOMPATIBLE_SCHEMA),
    (SubscriptionNotFound, ServerError.SUBSCRIPTION_NOT_FOUND),
    (SubscriptionGone, ServerError.SUBSCRIPTION_NOT_FOUND),
    (ConsumerBusy, ServerError.CONSUMER_BUSY),
    (SubscriptionTypeMismatch, ServerError.CONSUMER_BUSY),
    (NotFound, ServerError.TOPIC_NOT_FOUND),
    (ProducerFenced, ServerError.PRODUCER_FENCED),
    (ProducerBusy, ServerError.PRODUCER_BUSY),
    (BacklogQuotaExceeded, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION),
    (Retriable, ServerError.PERSISTENCE_ERROR),
)
#: Fields of a topic's name, in `InvalidName`.
_TOPIC_FIELDS = {"topic", "tenant", "namespace"}


def refusal_of(error: OncelogError) -> Refusal:
    """The answer to a request that failed with this error of the SDK. An error without a code of its own, which a retry
    does not change, becomes 22 (not allowed)."""
    if isinstance(error, InvalidName) and error.details.get("field") in _TOPIC_FIELDS:
        return Refusal(ServerError.INVALID_TOPIC_NAME, str(error))
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ServerError.NOT_ALLOWED_ERROR)
    return Refusal(code, str(error))
