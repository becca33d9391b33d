"""Kafka's error codes, and what an error of the log is as one of them.

Which code is answered decides what a client does: it tries again, gives the batch up, or ends. Clients show the name of
a code to their users, and most answers have no room for a sentence.
"""

from enum import IntEnum

from oncelog.core.errors import (
    BacklogQuotaExceeded,
    CorruptEntry,
    DeadlineExceeded,
    EntriesLost,
    InvalidArgument,
    InvalidName,
    LedgerUnavailable,
    MessageTooLarge,
    NotEnoughStorageNodes,
    NotFound,
    OncelogError,
    PermissionDenied,
    Retriable,
    Unauthenticated,
    UnreadableEntry,
)


class ErrorCode(IntEnum):
    """The numbers are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_PRODUCER_ID_MAPPING = 49
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87


#: The first class that an error belongs to decides.
_CODES: tuple[tuple[type[OncelogError], ErrorCode], ...] = (
    (Unauthenticated, ErrorCode.SASL_AUTHENTICATION_FAILED),
    (MessageTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (PermissionDenied, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (InvalidName, ErrorCode.INVALID_TOPIC),
    (InvalidArgument, ErrorCode.INVALID_REQUEST),
    (NotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (CorruptEntry, ErrorCode.CORRUPT_MESSAGE),
    (EntriesLost, ErrorCode.CORRUPT_MESSAGE),
    (UnreadableEntry, ErrorCode.CORRUPT_MESSAGE),
    (BacklogQuotaExceeded, ErrorCode.KAFKA_STORAGE_ERROR),
    (NotEnoughStorageNodes, ErrorCode.KAFKA_STORAGE_ERROR),
    (LedgerUnavailable, ErrorCode.KAFKA_STORAGE_ERROR),
    (DeadlineExceeded, ErrorCode.REQUEST_TIMED_OUT),
    (Retriable, ErrorCode.KAFKA_STORAGE_ERROR),
)


def code_of(error: OncelogError) -> ErrorCode:
    """The code for an error of the SDK: what a retry may change is a code that clients retry."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)
