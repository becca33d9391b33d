"""How many partitions a topic gets that a client of Kafka creates, or gives more of them.

Replicas are not placed by clients: any replication factor is taken, and of an assignment only the partitions count. So
is every topic partitioned that is created so, because only then it can get more partitions later.
"""

from collections.abc import Sequence

from oncelog.core.names import PARTITIONS_MAX
from oncelog_doors.core.kafka.administration_codes import Refused
from oncelog_doors.core.kafka.error_codes import ErrorCode

#: What clients send for the default.
_DEFAULT = -1


def count_of_new(count: int, replication_factor: int, assigned: Sequence[int], default: int) -> int:
    """assigned: the partitions that the client assigns to replicas; empty: it does not. default: if the client does not
    say how many. Raises Refused."""
    if assigned:
        if count != _DEFAULT or replication_factor != _DEFAULT:
            sentence = "a topic with assignments has -1 partitions and the replication factor -1 in its request"
            raise Refused(ErrorCode.INVALID_REQUEST, sentence)
        if sorted(assigned) != list(range(len(assigned))):
            sentence = f"the assigned partitions must be 0 to {len(assigned) - 1}, each once"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
        return _checked(len(assigned))
    if replication_factor != _DEFAULT and replication_factor < 1:
        sentence = f"the replication factor is {replication_factor}: give 1 or more, or -1 for the default"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, sentence)
    return default if count == _DEFAULT else _checked(count)


def check_growth(present: int, count: int, assigned: int | None) -> None:
    """present: partitions of the topic; 0: it is not partitioned. count: the new number. assigned: how many new
    partitions the client assigns to replicas; None: it does not. Raises Refused."""
    if not present:
        sentence = "the topic was created without partitions and cannot get more: create another topic with partitions"
        raise Refused(ErrorCode.INVALID_PARTITIONS, sentence)
    if count <= present:
        sentence = f"the topic has {present} partitions, which cannot become {count}: give a higher number"
        raise Refused(ErrorCode.INVALID_PARTITIONS, sentence)
    _checked(count)
    if assigned is not None and assigned != count - present:
        sentence = f"{assigned} partitions are assigned, and {count - present} are new: assign each new one"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)


def _checked(count: int) -> int:
    if not 1 <= count <= PARTITIONS_MAX:
        sentence = f"{count} partitions are wanted, and a topic has 1 to {PARTITIONS_MAX}"
        raise Refused(ErrorCode.INVALID_PARTITIONS, sentence)
    return count
