"""What a role may do, by the rights of its namespace, as sets of Kafka's operations. A set is a number with a bit for
each of them."""

from collections.abc import Collection
from enum import IntEnum

from oncelog.core.access import Right


class Operation(IntEnum):
    """The numbers are Kafka's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_O = Operation
_OF_TOPIC = {
    Right.PRODUCE: (_O.WRITE, _O.CREATE, _O.DESCRIBE),
    Right.CONSUME: (_O.READ, _O.DESCRIBE),
    Right.ADMIN: (_O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
}
#: The configurations of the broker cannot be altered by clients.
_OF_CLUSTER = {
    Right.PRODUCE: (_O.CREATE, _O.DESCRIBE, _O.IDEMPOTENT_WRITE),
    Right.CONSUME: (_O.DESCRIBE,),
    Right.ADMIN: (_O.CREATE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS),
}


def topic_operations(rights: Collection[Right]) -> int:
    """rights: of the role in the namespace of the topic."""
    return _bits(_OF_TOPIC, rights)


def cluster_operations(rights: Collection[Right]) -> int:
    """rights: of the role in the namespace of its connection."""
    return _bits(_OF_CLUSTER, rights)


def may_create_topics(rights: Collection[Right]) -> bool:
    return _has(topic_operations(rights), Operation.CREATE)


def may_describe_broker(rights: Collection[Right]) -> bool:
    return _has(cluster_operations(rights), Operation.DESCRIBE_CONFIGS)


def _has(bits: int, operation: Operation) -> bool:
    return bool(bits >> operation & 1)


def _bits(operations: dict[Right, tuple[Operation, ...]], rights: Collection[Right]) -> int:
    bits = 0
    for right in rights:
        for operation in operations[right]:
            bits |= 1 << operation
    return bits
