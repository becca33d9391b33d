"""Why a request of an administrator has failed, as an error code of Kafka and a sentence.

An error after which nothing is known of a change is REQUEST_TIMED_OUT: clients may ask again.
"""

from oncelog.core.errors import Conflict, InvalidArgument, LimitReached, OncelogError, PreconditionFailed, Retriable
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.core.kafka.topic_configs import InvalidConfig


class Refused(Exception):
    """The answer is an error."""

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code, self.sentence = code, sentence


#: The first class that an error belongs to decides; others as `code_of`.
_CODES: tuple[tuple[type[OncelogError], ErrorCode], ...] = (
    (PreconditionFailed, ErrorCode.REQUEST_TIMED_OUT),
    (Conflict, ErrorCode.TOPIC_ALREADY_EXISTS),
    (LimitReached, ErrorCode.POLICY_VIOLATION),
    (InvalidConfig, ErrorCode.INVALID_CONFIG),
    (Retriable, ErrorCode.REQUEST_TIMED_OUT),
)
#: {field of what REST or the owner refuses: its code}
_FIELDS = {"before_index": ErrorCode.OFFSET_OUT_OF_RANGE, "partitions": ErrorCode.INVALID_PARTITIONS}


def refused_for(error: OncelogError) -> Refused:
    """The error of a request about a topic."""
    own = (code for kind, code in _CODES if isinstance(error, kind))
    code = next(own, code_of(error))
    field = error.details.get("field") if isinstance(error, InvalidArgument) else None
    return Refused(_FIELDS.get(str(field), code), error.message)
