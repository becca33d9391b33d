"""Which codes a client of Kafka gets for offsets of its group.

Clients ask again after COORDINATOR_LOAD_IN_PROGRESS, and give up after most other codes. An offset of -1 lets a
consumer begin where its settings say, so it is answered only if an owner, or the service that knows all topics, has
said that there is none (hazard offset-without-its-owner).
"""

from collections.abc import Iterable

from oncelog.core.errors import (
    Conflict,
    ConsumerBusy,
    ConsumerFenced,
    InvalidArgument,
    InvalidName,
    LimitReached,
    OncelogError,
    SubscriptionTypeMismatch,
)
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of

#: In the place of an offset: there is none.
NO_OFFSET = -1


def commit_code_of(error: OncelogError) -> ErrorCode:
    """Of one partition to which an offset was to be committed."""
    match error:
        case InvalidName():
            return ErrorCode.INVALID_TOPIC
        case InvalidArgument() if error.details.get("field") == "offset":
            return ErrorCode.OFFSET_OUT_OF_RANGE
        case InvalidArgument() if error.details.get("field") == "metadata":
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        case ConsumerFenced():
            return ErrorCode.ILLEGAL_GENERATION
        case ConsumerBusy() | SubscriptionTypeMismatch() | Conflict():
            # The subscription with the group's name is used otherwise: asking again does not help.
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        case LimitReached():
            return ErrorCode.POLICY_VIOLATION
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error.retriable else code_of(error)


def fetch_code_of(error: OncelogError) -> ErrorCode:
    """Of one partition whose offset was asked for."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error.retriable else code_of(error)


def delete_code_of(error: OncelogError) -> ErrorCode:
    """Of one partition whose offset was to be deleted. A subscription that is used since has members again, or
    consumers of the SDK."""
    if isinstance(error, ConsumerFenced | Conflict):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return fetch_code_of(error)


def whole_code_of(codes: Iterable[ErrorCode]) -> ErrorCode:
    """The code of all partitions, if one of them has to be asked for again. Of an OffsetFetch a client would otherwise
    take the offsets of the others, and begin. After an OffsetCommit some clients (franz-go) look at the first partition
    alone to learn whether to send it again, as a coordinator of Kafka that is loading refuses all of them."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return loading if any(code is loading for code in codes) else ErrorCode.NONE


def newest_of(error: ConsumerFenced) -> int:
    """The generation that the subscription has."""
    newest = error.details.get("generation")
    return newest if isinstance(newest, int) else 0
