"""Requests for single messages and their ids: what they mean, who may ask, and what is wrong with them."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncelog.core.access import UNCHECKED
from oncelog.core.errors import (
    ChunkedMessage,
    CorruptEntry,
    InvalidArgument,
    LedgerUnavailable,
    MessageTooLarge,
    OncelogError,
    PermissionDenied,
    TopicNotFound,
)
from oncelog_doors.rest import log_calls
from tests.core.pulsar_entries import Sent, batched
from tests.doors.core.pulsar.stored_batches import columns, of_client, stored
from tests.doors.rest.fake_rest import ENTRY, PAGE, FakeRest, FakeRestLog, door_at, problem

ONE = "/admin/v2/persistent/acme/web/one"
BY_ID = f"{ONE}/ledger/3/entry/7"
BATCH = stored(of_client(batched([Sent(1, b"a"), Sent(2, b"b")]), [1, 2]), ledger_id=4, entry_id=0)
#: Each of them reads.
READS = (BY_ID, f"{ONE}/lastMessageId", f"{ONE}/examinemessage", f"{ONE}/subscription/s/position/1")


@pytest.mark.asyncio
async def test_message_by_its_id() -> None:
    async with door_at(FakeRest()) as door:
        answer = await door.get(BY_ID)
    assert (answer.status_code, answer.content) == (200, b"\xff")
    assert answer.headers["x-pulsar-message-id"] == "3:7"
    # Pulsar's client knows this header in no other case.
    assert dict(answer.headers.raw)[b"X-Pulsar-PROPERTY"] == b'{"a": "b"}'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-pulsar-publish-time"] == "2025-11-24T16:00:00.123Z"


@pytest.mark.asyncio
async def test_time_that_no_calendar_has_is_left_out() -> None:
    entry = stored(columns([b"x"], times_ms=[1 << 62]), ledger_id=3, entry_id=7)
    async with door_at(FakeRest(), log=FakeRestLog(entry)) as door:
        answer = await door.get(BY_ID)
    assert (answer.status_code, "x-pulsar-event-time" in answer.headers) == (200, False)


@pytest.mark.asyncio
@pytest.mark.parametrize("place", ["ledger/3/entry/8", "ledger/9/entry/0", f"ledger/{(1 << 63) - 1}/entry/0"])
async def test_unknown_id(place: str) -> None:
    async with door_at(FakeRest()) as door:
        answer = await door.get(f"{ONE}/{place}")
    assert answer.status_code == 404
    assert "no message of topic acme/web/one is stored at" in answer.json()["reason"]


@pytest.mark.asyncio
async def test_peek_shows_the_message_and_not_its_batch() -> None:
    """The tool asks for one number after the other, so a batch would come once for each of its messages."""
    rest = FakeRest()
    async with door_at(rest, log=FakeRestLog(BATCH)) as door:
        for number, value in ((1, b"a"), (2, b"b")):
            at = f"{ONE}/subscription/s/position/{number}"
            rest.answers[at] = {"index": 99 + number, "message_id": f"4:0:{number - 1}"}
            answer = await door.get(at)
            assert (answer.content, answer.headers["x-pulsar-message-id"]) == (value, f"4:0:{number - 1}")
            assert "x-pulsar-num-batch-message" not in answer.headers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("", 101),
        ("?initialPosition=latest&messagePosition=2", 100),
        ("?initialPosition=earliest", 100),
        ("?initialPosition=earliest&messagePosition=2", 101),
        ("?messagePosition=0", 101),
    ],
)
async def test_examined_message_is_counted_from_an_end(query: str, index: int) -> None:
    rest = FakeRest()
    rest.answers[f"{ONE}/messages"] = {
        "messages": [{"index": each, "message_id": f"4:0:{each - 100}"} for each in (100, 101)],
        "unreadable": None, "first_index": 100, "end_index": 102,
    }  # fmt: skip
    async with door_at(rest, log=FakeRestLog(BATCH)) as door:
        answer = await door.get(f"{ONE}/examinemessage{query}")
    assert (answer.status_code, answer.content) == (200, b"ab"[index - 100 :][:1])
    assert rest.asked[-1][1] == f"{ONE}/messages?limit=1&values=false&index={index}"


@pytest.mark.asyncio
async def test_examined_message_that_there_is_not() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        answer = await door.get(f"{ONE}/examinemessage?messagePosition=3")
        assert (answer.status_code, answer.json()["reason"]) == (
            400, "messagePosition: 3 is above the number of messages, 2",
        )  # fmt: skip
        rest.answers[f"{ONE}/messages"] = PAGE | {"first_index": 5, "end_index": 5, "messages": []}
        answer = await door.get(f"{ONE}/examinemessage")
        assert (answer.status_code, answer.json()["reason"]) == (412, "topic acme/web/one has no messages")
        rest.answers[f"{ONE}/messages"] = PAGE | {"messages": []}
        answer = await door.get(f"{ONE}/examinemessage")
        assert (answer.status_code, "not kept any more" in answer.json()["reason"]) == (404, True)
        away = {"first_index": 100, "count": 1, "reason": "storage nodes are away"}
        rest.answers[f"{ONE}/messages"] = PAGE | {"messages": [], "unreadable": away}
        answer = await door.get(f"{ONE}/examinemessage")
        assert (answer.status_code, answer.json()["reason"]) == (503, "storage nodes are away")


@pytest.mark.asyncio
async def test_id_at_a_time_behind_all_messages_is_the_place_behind_the_last_one() -> None:
    """What is stored there is stored later. It is found in two steps, and a message that is stored in between is not
    skipped: the place is behind the last message of the first step."""
    rest = FakeRest()
    pages = [PAGE | {"messages": [], "end_index": 101}, PAGE | {"end_index": 150}]

    def at(method: str, path: str) -> None:
        rest.answers[f"{ONE}/messages"] = pages[len(rest.asked) - 1]

    rest.instead = at
    async with door_at(rest) as door:
        answer = await door.get(f"{ONE}/messageid/1700000000000")
    assert answer.json() == {"ledgerId": 3, "entryId": 8, "partitionIndex": -1}
    assert [target.partition("?")[2] for _, target, _ in rest.asked] == [
        "limit=1&values=false&time_ms=1700000000000", "limit=1&values=false&index=100",
    ]  # fmt: skip


@pytest.mark.asyncio
async def test_ids_of_an_empty_topic() -> None:
    rest = FakeRest()
    rest.answers[f"{ONE}/messages"] = PAGE | {"messages": [], "first_index": 0, "end_index": 0}
    async with door_at(rest, log=FakeRestLog()) as door:
        assert (await door.get(f"{ONE}/lastMessageId")).json() == {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        answer = await door.get(f"{ONE}/messageid/1")
    assert (answer.status_code, answer.json()["reason"]) == (404, "topic acme/web/one has no messages")


@pytest.mark.asyncio
async def test_last_id_of_a_batch_in_a_partition() -> None:
    async with door_at(FakeRest(), log=FakeRestLog(ENTRY, BATCH)) as door:
        answer = await door.get(f"{ONE}-partition-3/lastMessageId")
    assert answer.json() == {"ledgerId": 4, "entryId": 0, "partitionIndex": 3, "batchIndex": 1, "batchSize": 2}


@pytest.mark.asyncio
@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PermissionDenied("no right to consume"), 403),
        (TopicNotFound("there is no such topic"), 404),
        (InvalidArgument("the topic has 3 partitions: use one of them", field="topic"), 400),
        (MessageTooLarge("it has 9 MB", field="message", limit=1), 413),
        (ChunkedMessage("it is in chunks"), 409),
        (LedgerUnavailable("no storage node has a copy now"), 503),
        (CorruptEntry("entry 3:7 cannot be read"), 500),
    ],
)
async def test_error_of_the_log(path: str, error: OncelogError, status: int) -> None:
    log = FakeRestLog(ENTRY)
    log.entries.error = error
    async with door_at(FakeRest(), log=log) as door:
        answer = await door.get(path)
    assert (answer.status_code, answer.json()) == (status, {"reason": error.message})
    assert set(log.entries.callers) == {UNCHECKED}


@pytest.mark.asyncio
async def test_peek_that_the_cluster_refuses_reads_nothing() -> None:
    rest, log = FakeRest(), FakeRestLog(ENTRY)
    rest.instead = lambda _method, _path: problem(403, "no")
    async with door_at(rest, log=log) as door:
        assert (await door.get(READS[-1])).status_code == 403
    assert log.entries.callers == []


@pytest.mark.asyncio
async def test_log_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_calls, "ANSWER_S", 0.01)
    log = FakeRestLog()

    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(log.entries, "last_id", never)
    async with door_at(FakeRest(), log=log) as door:
        answer = await door.get(f"{ONE}/lastMessageId")
    assert (answer.status_code, answer.headers["retry-after"]) == (504, "1")
    assert "has not answered in 0.01 s" in answer.json()["reason"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (f"{ONE}/ledger/x/entry/7", 400, "ledger: must be a whole number, not 'x'"),
        (f"{ONE}/ledger/3/entry/-1", 400, "entry: must be 0 to "),
        (f"{ONE}/ledger/{1 << 63}/entry/7", 400, "ledger: must be 0 to "),
        (f"{ONE}/ledger/{'9' * 5000}/entry/7", 400, "ledger: must be a whole number, not '999"),
        (f"{ONE}/messageid/soon", 400, "timestamp: must be a whole number, not 'soon'"),
        (f"{ONE}/messageid/-1", 400, "timestamp: must be 0 to "),
        (f"{ONE}/messageid/{1 << 53}", 400, "timestamp: must be 0 to "),
        (f"{ONE}/examinemessage?initialPosition=middle", 400, "initialPosition: 'middle' is neither"),
        (f"{ONE}/examinemessage?messagePosition=", 400, "messagePosition: must be a whole number, not ''"),
        (f"{ONE}/examinemessage?messagePosition=-5", 400, "messagePosition: must be 0 to "),
        ("/admin/v2/persistent/acme/web/__oncelog_schemas/ledger/3/entry/7", 412, "topics whose names begin with"),
        ("/admin/v2/persistent/acme/web/a%0Ab/lastMessageId", 412, ""),
    ],
)
async def test_wrong_request_is_refused_and_named(path: str, status: int, reason: str) -> None:
    rest, log = FakeRest(), FakeRestLog(ENTRY)
    async with door_at(rest, log=log) as door:
        answer = await door.get(path)
    assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (status, reason)
    assert (rest.asked, log.entries.callers) == ([], [])


@pytest.mark.asyncio
async def test_random_requests_get_an_answer() -> None:
    """Whatever stands in the path, the query and the body: an error has a reason, and none is a failure of the door."""
    random = Random(7)
    pieces = ["", "x", "-1", "0", "7", "%00", "%0d%0a", "..", "%2f", "%ff", "9" * 40, "\u00fc", "{", "1e5", " ", "%"]
    shapes: list[Callable[[list[str]], tuple[str, str]]] = [
        lambda some: ("GET", f"{ONE}/ledger/{some[0]}/entry/{some[1]}"),
        lambda some: ("GET", f"{ONE}/messageid/{some[0]}"),
        lambda some: ("GET", f"{ONE}/examinemessage?initialPosition={some[0]}&messagePosition={some[1]}"),
        lambda some: ("GET", f"/admin/v2/persistent/acme/{some[0]}/{some[1]}/lastMessageId"),
        lambda some: ("GET", f"/admin/v2/schemas/acme/web/{some[0]}/schema/{some[1]}"),
        lambda some: (
            "POST",
            f"/admin/v2/schemas/acme/web/one/{random.choice(('schema', 'compatibility', 'version'))}",
        ),
    ]
    bodies = [b"", b"{}", b"[]", b"null", b'{"type":1}', b'{"type":"AVRO","schema":"\\ud800"}', b"\xff", b"[" * 5000]
    async with door_at(FakeRest()) as door:
        for _ in range(400):
            method, path = random.choice(shapes)([random.choice(pieces) for _ in range(2)])
            answer = await door.request(method, path, content=random.choice(bodies) if method == "POST" else None)
            assert answer.status_code < 500 or answer.status_code == 501, (method, path, answer.text)
            if answer.status_code >= 400:
                assert [*answer.json()] == ["reason"]
