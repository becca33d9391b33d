"""Bodies: as another codec reads and writes them, in every version; and what contradicts itself is refused."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.codec import (
    ELEMENTS_MAX,
    TEXT_BYTES_MAX,
    Body,
    read_request,
    read_response,
    write_request,
    write_response,
)
from oncelog_doors.wire.kafka_tables import REQUESTS, RESPONSES
from tests.doors.kafka.any_bodies import any_body
from tests.doors.kafka.oracle import body_of, class_of

#: kafka-python has no definition of these versions any more.
_FIRST_OF_ORACLE = {"Produce": 3}
_CASES = [
    (kind, api, version)
    for api, versions in KNOWN.items()
    for kind in ("request", "response")
    for version in range(max(versions.first, _FIRST_OF_ORACLE.get(api, 0)), versions.last + 1)
]


def _write(kind: str, api: str, version: int, body: Body) -> bytes:
    return b"".join((write_request if kind == "request" else write_response)(api, version, body))


def _read(kind: str, api: str, version: int, data: bytes) -> Body:
    return (read_request if kind == "request" else read_response)(api, version, data)


def _plain(value: Any) -> Any:
    """With bytes in the place of slices."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize(("kind", "api", "version"), _CASES)
def test_another_codec_reads_what_is_written_and_writes_what_is_read(kind: str, api: str, version: int) -> None:
    random = Random(f"{kind} {api} {version}")
    fields = (REQUESTS if kind == "request" else RESPONSES)[api].fields
    for _ in range(8):
        body = any_body(fields, version, random)
        if (kind, api) == ("response", "ApiVersions"):
            body["error_code"] = 0  # after an error clients read version 0, whatever they have asked for
        data = _write(kind, api, version, body)
        theirs = class_of(kind, api).decode(data, version=version)
        theirs._header = None
        assert body_of(theirs, body) == body
        back = _plain(_read(kind, api, version, theirs.encode(version=version)))
        assert {name: back[name] for name in body} == body


@pytest.mark.parametrize(("kind", "api", "version"), _CASES)
def test_fields_that_are_missing_have_their_defaults(kind: str, api: str, version: int) -> None:
    """ListOffsets: the other codec's default is that of clients."""
    given = {"replica_id": -1} if (kind, api) == ("request", "ListOffsets") else {}
    theirs = class_of(kind, api)(version=version)
    assert _write(kind, api, version, given) == theirs.encode(version=version)


def _damaged(data: bytes, random: Random) -> Iterator[bytes]:
    yield from (data[:length] for length in range(min(len(data), 200)))
    yield data + b"\0"
    for _ in range(200):
        at = random.randrange(len(data))
        yield data[:at] + random.randbytes(random.choice((1, 2, 4, 8))) + data[at + 1 :]


@pytest.mark.parametrize(("kind", "api", "version"), _CASES)
def test_damaged_bytes_are_refused_or_read_whole(kind: str, api: str, version: int) -> None:
    random = Random(f"{kind} {api} {version}")
    fields = (REQUESTS if kind == "request" else RESPONSES)[api].fields
    data = _write(kind, api, version, any_body(fields, version, random))
    for each in _damaged(data or b"\0", random):
        try:
            body = _read(kind, api, version, each)
        except InvalidArgument as error:
            assert error.details.get("field")  # noqa: PT017  # most of the bytes raise nothing
        else:
            again = _write(kind, api, version, body)
            assert _plain(_read(kind, api, version, again)) == _plain(body)


def test_an_error_names_the_field_and_the_limit() -> None:
    whole = _write("request", "SaslHandshake", 1, {"mechanism": "PLAIN"})
    with pytest.raises(InvalidArgument, match="mechanism: 5 bytes are wanted, and 4 are left") as raised:
        read_request("SaslHandshake", 1, whole[:-1])
    assert raised.value.details == {"field": "mechanism", "limit": 4}


def test_bytes_behind_the_last_field_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="1 bytes follow the last field"):
        read_request("SaslHandshake", 1, _write("request", "SaslHandshake", 1, {"mechanism": "PLAIN"}) + b"\0")


def test_a_long_text_is_refused() -> None:
    text = "x" * (TEXT_BYTES_MAX + 1)
    with pytest.raises(
        InvalidArgument, match="client_software_name: a text has 32769 bytes, at most 32768 are allowed"
    ):
        read_request("ApiVersions", 3, b"\x82\x80\x02" + text.encode())


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="mechanism: a text is not UTF-8"):
        read_request("SaslHandshake", 1, b"\0\1\xff")


def test_a_list_that_cannot_be_in_its_bytes_is_refused_before_it_is_made() -> None:
    with pytest.raises(InvalidArgument, match="topics: 2147483647 elements do not fit in 0 bytes"):
        read_request("Metadata", 1, b"\x7f\xff\xff\xff")


def test_the_elements_of_all_lists_of_a_message_are_counted() -> None:
    """Two bytes of a request become an object of some hundred bytes."""
    many = (ELEMENTS_MAX + 1).to_bytes(4, "big") + b"\0\0" * (ELEMENTS_MAX + 1)
    with pytest.raises(InvalidArgument, match="topics: a message has more than 100000 elements"):
        read_request("Metadata", 1, many)
    half = [{"topic": "t", "partitions": [{}] * (ELEMENTS_MAX // 2)}]
    two_lists = _write("request", "Fetch", 4, {"topics": half * 2})
    with pytest.raises(InvalidArgument, match="partitions: a message has more than 100000 elements"):
        read_request("Fetch", 4, two_lists)


def test_null_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(InvalidArgument, match="mechanism: it is null"):
        read_request("SaslHandshake", 1, b"\xff\xff")
    with pytest.raises(InvalidArgument, match="topics: it is null"):
        read_request("Metadata", 0, b"\xff\xff\xff\xff")


def test_unknown_tagged_fields_are_skipped() -> None:
    body = _write("request", "ApiVersions", 3, {"client_software_name": "a", "client_software_version": "b"})
    with_tag = body[:-1] + b"\x01\x07\x03abc"
    assert read_request("ApiVersions", 3, with_tag) == read_request("ApiVersions", 3, body)


def test_records_are_slices_of_what_was_read() -> None:
    partition = {"index": 1, "records": b"x" * 1000}
    data = _write("request", "Produce", 8, {"topic_data": [{"name": "t", "partition_data": [partition]}]})
    found = read_request("Produce", 8, data)["topic_data"][0]["partition_data"][0]["records"]
    assert isinstance(found, memoryview)
    assert found.obj is data
