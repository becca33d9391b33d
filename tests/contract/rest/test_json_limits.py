"""The JSON of a body is limited in values and depth before it is parsed."""

import json
import tracemalloc

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument, MessageTooLarge
from oncelog.metadata.rest.port.body_limits import DEPTH_MAX, VALUES_MAX, check_json
from tests.contract.rest.admin.admin_world import serving
from tests.contract.rest.publish_world import ORDERS, PublishWorld

BODY_BYTES = 8 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def body_of(element: bytes) -> bytes:
    """A publish body of BODY_BYTES that repeats one element."""
    head, tail = b'{"producer_name":"p","sequence_id":1,"messages":[', b"{}]}"
    return head + (element + b",") * ((BODY_BYTES - len(head) - len(tail)) // (len(element) + 1)) + tail


def values_in(found: object) -> int:
    """Upper bound of the scan's count, from the parsed value."""
    if isinstance(found, dict):
        return 2 + sum(2 + values_in(each) for each in found.values())
    if isinstance(found, list):
        return 2 + sum(1 + values_in(each) for each in found)
    return 1


@given(content=JSON)
def test_values_are_counted_as_a_parser_counts_them(content: object) -> None:
    """Brackets, commas and quotes in strings do not count."""
    body = json.dumps(content, ensure_ascii=False).encode()
    check_json(body, values_max=max(1, values_in(content)))


def test_string_with_brackets_counts_as_one_value() -> None:
    """Messages are often JSON themselves."""
    text = json.dumps({"rows": [{"a": '["]}\\'}] * 10_000})
    body = json.dumps({"messages": [{"value": text}]}).encode()
    assert body.count(b"[") > 10_000
    check_json(body, values_max=10)


@pytest.mark.parametrize("body", [b"[" * 100, b'{"a":' * 100, b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)])
def test_deep_nesting_is_refused_before_a_parser_recurses(body: bytes) -> None:
    """A parser needs stack for each level."""
    with pytest.raises(InvalidArgument, match="nested deeper"):
        check_json(body)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be"])
def test_only_utf_8_is_read(encoding: str) -> None:
    """A parser detects other encodings, which this scan would count wrongly."""
    with pytest.raises(InvalidArgument, match="UTF-8"):
        check_json(json.dumps({"messages": []}).encode(encoding))


@pytest.mark.parametrize("element", [b"{}", b"[]", b'""', b"0", b'{"x":1}', b'{"value":"","value":""}'])
def test_body_of_many_small_values_is_refused_before_it_is_parsed(element: bytes) -> None:
    """Whatever they are: the parser would need memory for each."""
    with pytest.raises(MessageTooLarge) as refused:
        check_json(body_of(element))
    assert refused.value.details["limit"] == VALUES_MAX


@pytest.mark.asyncio
async def test_body_of_many_small_values_needs_little_memory() -> None:
    """8 MiB of `{},` once needed 1.8 GB. Now the peak is a small multiple of the sent bytes."""
    body = body_of(b"{}")
    async with PublishWorld.running() as world:
        replica = await world.replica()
        await replica.post("first", producer_name="p", sequence_id=0)  # imports and caches are made before
        tracemalloc.start()
        answer = await send(replica.http, body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (413, "message_too_large", VALUES_MAX)
    assert peak < 4 * len(body)


@pytest.mark.asyncio
async def test_memory_of_a_body_is_limited_by_its_value_count() -> None:
    """Only the first error is collected, not one for each of a thousand invalid messages."""
    body = b'{"producer_name":"p","sequence_id":1,"messages":[' + b"7," * 60_000 + b"7]}"
    async with PublishWorld.running() as world:
        replica = await world.replica()
        await replica.post("first", producer_name="p", sequence_id=0)
        tracemalloc.start()
        answer = await send(replica.http, body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (answer.status_code, answer.json()["field"]) == (422, "messages.0")
    assert peak < 5 << 20


@pytest.mark.asyncio
async def test_admin_requests_have_the_same_limits() -> None:
    """Their bodies are smaller, but would be multiplied in the same way."""
    async with serving() as admin:
        for body, status in ((b"[" * 1_000, 422), (b"[" + b"{}," * 100_000 + b"{}]", 413)):
            answer = await admin.http.put(
                "/admin/v2/namespaces/public/many", content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == status, answer.text


async def send(http: httpx.AsyncClient, body: bytes) -> httpx.Response:
    return await http.post(ORDERS, content=body, headers={"Content-Type": "application/json"})
