"""The answer to GET_TOPICS_OF_NAMESPACE, which clients ask once a minute for a subscription by a pattern.

The list has full names, and a partitioned topic as its partitions: clients remove the number of the partition, and
apply their pattern themselves. Topics that doors have for themselves are not listed.

A client that has had a list sends its hash. If the list is still the same, the answer has no names. The hash is the one
that clients compute: CRC32C of the sorted names.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from oncelog.core.names import is_of_doors
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.shared.named_topics import NamedTopic

_SCHEME = "persistent://"
#: Of a name in a command: its field number and its length.
_FRAMING_BYTES = 4


@dataclass(frozen=True, slots=True)
class TopicList:
    """names: in full, sorted; empty if not changed."""

    names: tuple[str, ...]
    hash: str
    changed: bool = True


def topic_list(
    topics: Iterable[NamedTopic], known_hash: str, bytes_max: int, checksum: Callable[[bytes], int]
) -> TopicList | Refusal:
    """known_hash: of the list that the client has; empty: none. bytes_max: of the names in one command. checksum:
    CRC32C."""
    names: list[str] = []
    size = 0
    for topic in topics:
        if is_of_doors(topic.local):
            continue
        whole = f"{_SCHEME}{topic.name}"
        parts = [f"{whole}-partition-{number}" for number in range(topic.partitions)] or [whole]
        names += parts
        size += sum(map(len, parts)) + _FRAMING_BYTES * len(parts)
        if size > bytes_max:
            sentence = (
                f"the names of the topics of this namespace have more than {bytes_max} bytes, the limit of a command: "
                "subscribe to topics by their names, or use several namespaces"
            )
            return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    names.sort()
    found = TopicList(tuple(names), checksum(",".join(names).encode()).to_bytes(4, "little").hex())
    return replace(found, names=(), changed=False) if found.hash == known_hash else found
