"""Which version a schema has, by the log of schemas."""

from random import Random

import pytest

from oncelog.core.errors import LimitReached, NotFound
from oncelog_doors.core.pulsar.schemas import (
    VERSIONS_MAX,
    IncompatibleSchema,
    Schema,
    Schemas,
    Stored,
    decode_version,
    encode_version,
    is_compared,
)
from oncelog_doors.core.pulsar.server_errors import ServerError, refusal_of

STRING, JSON, AVRO, PROTOBUF_NATIVE, AUTO_CONSUME = 1, 2, 4, 20, 21


def schema(name: str, kind: int = JSON) -> Schema:
    return Schema(kind, name.encode())


def stored(name: str, number: int, kind: int = JSON, topic_id: str = "orders") -> Stored:
    return Stored(topic_id, kind, schema(name).digest, number)


def folded(*messages: Stored) -> Schemas:
    found = Schemas()
    for message in messages:
        found.add(message)
    return found


def test_versions_count_the_schemas_of_a_topic_in_the_order_of_the_log() -> None:
    found = folded(stored("a", 0), stored("a", 1, topic_id="lines"), stored("b", 2), stored("c", 3, topic_id="lines"))
    assert [found.version_of("orders", schema(name)) for name in "abc"] == [0, 1, None]
    assert [found.version_of("lines", schema(name)) for name in "abc"] == [0, None, 1]
    assert found.version_of("others", schema("a")) is None


def test_same_bytes_have_the_same_version() -> None:
    """Two doors have stored them at once. What comes behind has the same version at each."""
    found = folded(stored("a", 0), stored("b", 1), stored("b", 2), stored("a", 3), stored("c", 4))
    assert [found.version_of("orders", schema(name)) for name in "abc"] == [0, 1, 2]
    assert [found.place_of("orders", version) for version in (0, 1, 2)] == [(0, 0), (1, 1), (2, 4)]


def test_first_schema_decides_the_type() -> None:
    """A message of another type that came at the same time is passed over, and its client is refused."""
    found = folded(stored("a", 0), stored("b", 1, AVRO), stored("c", 2))
    assert found.version_of("orders", schema("c")) == 1
    with pytest.raises(IncompatibleSchema, match="of type AVRO, and the topic has schemas of type JSON") as refused:
        found.version_of("orders", schema("b", AVRO))
    assert refusal_of(refused.value).code == ServerError.INCOMPATIBLE_SCHEMA
    with pytest.raises(IncompatibleSchema, match="of type number 77"):
        found.version_of("orders", schema("a", 77))


def test_versions_of_a_topic_are_limited() -> None:
    """Those that are there are still found, and each door passes over the same messages."""
    found = folded(*(stored(f"{number}", number) for number in range(VERSIONS_MAX + 1)))
    assert found.version_of("orders", schema(f"{VERSIONS_MAX - 1}")) == VERSIONS_MAX - 1
    assert found.place_of("orders", None) == (VERSIONS_MAX - 1, VERSIONS_MAX - 1)
    with pytest.raises(LimitReached, match="has 1000 schemas"):
        found.version_of("orders", schema(f"{VERSIONS_MAX}"))


def test_newest_version_is_found() -> None:
    found = folded(stored("a", 5), stored("b", 7))
    assert found.place_of("orders", None) == (1, 7)
    assert found.place_of("orders", 2) is None
    assert found.place_of("lines", None) is None


def test_doors_that_store_at_once_find_the_same_versions() -> None:
    """In each order of the log, and wherever each of them has begun to read."""
    random = Random(7)
    for _ in range(200):
        names = [random.choice("abcdef") for _ in range(12)]
        log = [stored(name, number) for number, name in enumerate(names)]
        cut = random.randrange(len(log))
        early = folded(*log[:cut])
        before = {name: early.version_of("orders", schema(name)) for name in names}
        for message in log[cut:]:
            early.add(message)
        late = folded(*log)
        versions = {name: late.version_of("orders", schema(name)) for name in names}
        assert versions == {name: number for number, name in enumerate(dict.fromkeys(names))}
        assert {name: early.version_of("orders", schema(name)) for name in names} == versions
        assert all(version in (None, versions[name]) for name, version in before.items())


def test_version_is_a_number_of_8_bytes() -> None:
    """The highest byte first, as the Java client reads it. Other bytes are no version of a door."""
    assert encode_version(258) == b"\0\0\0\0\0\0\1\2"
    assert decode_version(encode_version(258)) == 258
    for other in (b"", b"\0" * 7, b"\0" * 9):
        with pytest.raises(NotFound, match="8 bytes"):
            decode_version(other)


def test_schemas_that_say_nothing_are_not_compared() -> None:
    """None at all, bytes, and a consumer that takes any."""
    assert [is_compared(kind) for kind in (0, -1, AUTO_CONSUME)] == [False] * 3
    assert all(is_compared(kind) for kind in (STRING, JSON, AVRO, PROTOBUF_NATIVE, 22))
