"""What a client is answered that asks for the topics of a namespace."""

from zlib import crc32

from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.topic_lists import TopicList, topic_list
from oncelog_doors.core.shared.named_topics import NamedTopic

BYTES_MAX = 5 * 1024 * 1024
TOPICS = [NamedTopic("shop/main/orders"), NamedTopic("shop/main/lines", 2)]
NAMES = (
    "persistent://shop/main/lines-partition-0", "persistent://shop/main/lines-partition-1",
    "persistent://shop/main/orders",
)  # fmt: skip


def listed(topics: list[NamedTopic], known_hash: str = "", bytes_max: int = BYTES_MAX) -> TopicList | Refusal:
    return topic_list(topics, known_hash, bytes_max, crc32)


def names(topics: list[NamedTopic]) -> tuple[str, ...]:
    found = listed(topics)
    assert isinstance(found, TopicList)
    return found.names


def test_names_are_whole_and_sorted_and_partitions_are_listed() -> None:
    """Clients remove the scheme and the number of the partition."""
    assert names(TOPICS) == NAMES


def test_topics_of_doors_are_not_listed() -> None:
    """Only those whose last element begins so."""
    own = [NamedTopic("shop/main/__oncelog_schemas"), NamedTopic("__oncelog_x/main/orders")]
    assert names(own) == ("persistent://__oncelog_x/main/orders",)


def test_list_that_the_client_has_comes_without_names() -> None:
    """As long as it is the same, in whatever order the cluster has listed it."""
    first = listed(TOPICS)
    assert isinstance(first, TopicList)
    assert first.changed
    assert listed(TOPICS[::-1], first.hash) == TopicList((), first.hash, changed=False)
    more = listed([*TOPICS, NamedTopic("shop/main/more")], first.hash)
    assert isinstance(more, TopicList)
    assert more.changed
    assert more.hash != first.hash


def test_hash_is_the_one_of_clients() -> None:
    """A checksum of the sorted names with commas; the lowest byte first, as the Java client writes it."""
    found = listed(TOPICS)
    assert isinstance(found, TopicList)
    assert found.hash == crc32(",".join(NAMES).encode()).to_bytes(4, "little").hex()
    assert listed([]) == TopicList((), "00000000")


def test_list_above_the_limit_of_a_command_is_refused() -> None:
    """A client closes the connection for a longer command. The last name that fits is listed."""
    size = sum(len(name) + 4 for name in NAMES)
    assert isinstance(listed(TOPICS, bytes_max=size), TopicList)
    refused = listed(TOPICS, bytes_max=size - 1)
    assert isinstance(refused, Refusal)
    assert refused.code == ServerError.NOT_ALLOWED_ERROR
    assert f"more than {size - 1} bytes" in refused.sentence
    many = [NamedTopic(f"shop/main/{number:06d}-{'x' * 60}") for number in range(100_000)]
    assert isinstance(listed(many), Refusal)
