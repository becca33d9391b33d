"""A look at single messages at a real owner, over the wire: where one is, and what is stored."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.batch import HEADER_BYTES, peek_batch
from oncelog.core.formats.columns import Column, encode_event_times, encode_keys, encode_properties, encode_values
from oncelog.core.formats.compression import Compression, compress_payload
from oncelog.core.formats.entry import body_of, encode_header, peek_header
from oncelog.core.ids import EntryId, LedgerId, Position, ProducerId
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.finding_codec import FIND_MESSAGE, READ_STORED_MESSAGES
from oncelog.rpc.codecs.owner_codec import OpenGranted
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime, start_message
from oncelog.topic_owner.observe import id_look_up, stored_page
from oncelog.topic_owner.observe.stored_messages import EVERY, shown_messages
from oncelog.topic_owner.observe.stored_page import StoredPage
from oncelog.topic_owner.shell.message_reads import stored_entry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.finding_service import MESSAGES_MAX, VALUE_BYTES_MAX
from oncelog.wire import finding_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerLimits, PublishClient, batch_of, owner_world
from tests.contract.owner.reading.shown_log import at
from tests.contract.owner.reading.test_message_reads import Reads
from tests.contract.rest.test_peeked_message import stored
from tests.contract.sdk.consuming.test_chunk_join import VALUE, message
from tests.core.pulsar_entries import Sent, batched, encrypted

pytestmark = pytest.mark.asyncio
TIMEOUT_MS = 10_000
MARKUP = "<script>alert('1')</script>\x00"


class Looker:
    """Calls of a metadata service about one topic."""

    def __init__(self, channel: Channel, runner: TopicRunner) -> None:
        self.channel = channel
        self.topic: dict[str, Any] = {"topic": runner.name, "topic_id": runner.topic_id}

    async def find(self, sequence_id: int, name: str = "till") -> dict[str, Any]:
        request = pb.FindMessageRequest(producer_name=name, sequence_id=sequence_id, **self.topic)
        found: dict[str, Any] = json.loads(
            (await self.channel.call(FIND_MESSAGE, request, timeout_ms=TIMEOUT_MS)).found_json
        )
        return found

    async def state(self, sequence_id: int, name: str = "till") -> str:
        return str((await self.find(sequence_id, name))["state"])

    async def read(self, start: StartAt, **options: Any) -> pb.StoredMessagesAnswer:
        request = pb.StoredMessagesRequest(
            start=start_message(start), **{"limit": 10, "with_content": True, "value_bytes_max": 100} | options,
            **self.topic,
        )  # fmt: skip
        return await self.channel.call(READ_STORED_MESSAGES, request, timeout_ms=TIMEOUT_MS)


def sparse(granted: OpenGranted, ids: Sequence[int]) -> list[bytes]:
    """A batch for each id."""
    return [batch_of(granted, [each]) for each in ids]


async def test_stored_and_missing_ids_are_told_apart_with_what_was_refused(tmp_path: Path) -> None:
    """Also for an idle producer, which stays idle."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        await client.stored(granted, batch_of(granted, [0, 1, 2]), *sparse(granted, [7, 9]))
        await client.stored(granted, batch_of(granted, [0, 1, 2]))
        await client.stored(granted, batch_of(granted, [0, 1, 2]))
        found = await looker.find(1)
        refused = found.pop("refusals")
        assert (found["state"], found["index"], found["mode"]) == ("stored", 1, "monotonic")
        assert found["message_id"].endswith(":1")
        assert found["explanation"] == f"stored as {found['message_id']}, index 1"
        assert found["append_time_ms"] <= refused["first_ms"] <= refused["last_ms"]
        assert (refused["counts"], refused["possible_counts"]) == ({"duplicate": 2}, {})
        assert refused["last_from"].startswith("127.0.0.1:")
        assert (refused["complete"], refused["since_ms"] <= refused["first_ms"]) == (True, True)
        assert (await looker.find(9))["index"] == 4
        known = runner.core.serving
        assert known is not None
        producers = known.log.table.state.producers
        producers.make_idle(before_ms=1 << 60)
        assert [await looker.state(number) for number in (7, 8, 10)] == ["stored", "never_stored", "not_stored"]
        assert await looker.state(1, "nobody") == "unknown_producer"
        assert producers.peek(ProducerId(granted.producer_id)) is not producers.peek(ProducerId(granted.producer_id))
        with pytest.raises(InvalidArgument, match="sequence_id=-1"):
            await looker.find(-1)


async def test_message_in_flight_is_not_called_stored(tmp_path: Path) -> None:
    """Its write may still fail."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        with world.node.hold():
            await client.send(granted.session, batch_of(granted, [5]))
            found = runner.core.serving
            assert found is not None
            await until(lambda: found.log.table.in_flight(ProducerId(granted.producer_id)), DEADLINE_S)
            shown = await looker.find(5)
            assert (shown["state"], shown["index"], shown["accepted"], shown["persisted"]) == ("in_flight", None, 5, -1)
        await client.receive()
        assert (await looker.find(5))["index"] == 0


async def test_trimmed_message_is_stored_and_gone(tmp_path: Path) -> None:
    """The owner remembers the id, not its index."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        await client.stored(granted, batch_of(granted, [5]))
        place = (await looker.find(5))["message_id"]
        await runner.retention.truncate()
        found = await looker.find(5)
        assert (found["state"], found["message_id"], found["index"]) == ("trimmed", place, None)
        page = await looker.read(StartIndex(0))
        assert (list(page.messages), page.first_index, page.begin_index, page.end_index) == ([], 1, 1, 1)


async def test_id_of_any_age_is_found_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner remembers the last 64 batches. Another producer has stored messages between."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted, other = await client.open(runner, "till"), await client.open(runner, "other")
        for number in range(0, 300, 3):
            await client.stored(other, batch_of(other, [number, number + 1]))
            await client.stored(granted, batch_of(granted, [number, number + 2]))
        for number in (0, 2, 3, 50, 99):
            found = await looker.find(number)
            assert (found["state"], found["index"]) == ("stored", number // 3 * 4 + 2 + number % 3 // 2)
            page = await looker.read(StartIndex(found["index"]), limit=1)
            assert (page.messages[0].sequence_id, page.messages[0].producer_name) == (number, "till")
        assert [await looker.state(number) for number in (1, 46, 100)] == ["not_found"] * 3
        with monkeypatch.context() as patch:
            patch.setattr(id_look_up, "SEARCH_BYTES", 0)
            found = await looker.find(50)
            assert found["state"] == "older_than_remembered"
            assert found["explanation"].endswith("400 of 400 messages were not looked at")
        await runner.retention.truncate()
        assert (await looker.find(50))["state"] == "not_found"


async def test_after_truncation_and_takeover_the_answer_has_the_right_bound(tmp_path: Path) -> None:
    """A new owner knows the ends of a batch with holes. What is between them nobody knows any more, and it says so."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        await client.stored(granted, batch_of(granted, list(range(0, 20, 2))))
        assert await looker.state(5) == "never_stored"
        await runner.retention.truncate()
        served = runner.core.serving
        assert served is not None
        served.log.table.state.producers.make_idle(before_ms=1 << 60)  # as a snapshot gives it to a new owner
        assert [await looker.state(number) for number in (0, 18, 19)] == ["trimmed", "trimmed", "not_stored"]
        found = await looker.find(5)
        assert (found["state"], found["recent_floor"]) == ("older_than_remembered", 18)
        assert found["explanation"].startswith(
            "not known any more: the producer has stored 10 sequence ids from 0 to 18 as one batch, and retention has "
            "deleted its entry. Whether 5 was one of them cannot be seen any more"
        )


def spoil_entries(directory: Path) -> None:
    """A storage node cannot read any entry. It goes on, so the owner can prove that it is the owner."""
    for segment in (directory / "segments").iterdir():
        data = bytearray(segment.read_bytes())
        data[64:] = bytes(each ^ 1 for each in data[64:])
        segment.write_bytes(data)


async def test_message_whose_entry_nobody_gives_is_stored_all_the_same(tmp_path: Path) -> None:
    """The owner knows that it is. A damaged copy is no loss while its record does not say so."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        await client.stored(granted, batch_of(granted, [5]))
        runner.cache.clear()
        spoil_entries(world.node.path)
        found = await looker.find(5)
        assert (found["state"], found["index"]) == ("stored", None)
        assert "it cannot be read now" in found["explanation"]


async def test_whether_a_lost_entry_holds_an_id_is_unknown_and_no_error(tmp_path: Path) -> None:
    """The ends of its batch are stored all the same."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        await client.stored(granted, batch_of(granted, [5, 7, 9]))
        served = runner.core.serving
        assert served is not None
        served.log.table.state.producers.make_idle(before_ms=1 << 60)
        runner.cache.clear()
        spoil_entries(world.node.path)
        between, end = await looker.find(7), await looker.find(9)
        assert (between["state"], between["message_id"], end["state"]) == ("unknown", None, "stored")
        assert between["explanation"].startswith("not known: only one entry knows whether it holds sequence id 7")
        assert "it cannot be read now" in between["explanation"]


async def test_page_has_all_of_each_message_from_any_place(tmp_path: Path) -> None:
    """By index, message id and time, forwards and back; behind the end there is nothing. Whatever a producer sends, it
    comes back as it is."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, MARKUP[:8])
        values = [MARKUP.encode(), b"", b"\xff\x00"]
        payload = b"".join(
            [
                encode_values(values), encode_keys([MARKUP.encode(), None, b""]), encode_event_times([None, 7, 8]),
                encode_properties([{MARKUP: MARKUP}, {}, {}]),
            ]
        )  # fmt: skip
        packed = bytes(compress_payload(payload, Compression.ZSTD))
        await client.stored(
            granted, batch_of(granted, [4, 5, 6], payload=packed, raw_bytes=len(payload), compression=Compression.ZSTD)
        )
        await client.stored(granted, *sparse(granted, range(10, 17)))
        page = await looker.read(StartIndex(0), limit=4)
        assert [one.index for one in page.messages] == [0, 1, 2, 3]
        assert (page.first_index, page.begin_index, page.next_index, page.end_index) == (0, 0, 4, 10)
        one, two, three, four = page.messages
        assert [each.value for each in (one, two, three)] == values
        assert (one.key, two.HasField("key"), three.HasField("key")) == (MARKUP.encode(), False, True)
        assert (dict(one.properties), dict(two.properties)) == ({MARKUP: MARKUP}, {})
        assert (one.HasField("event_time_ms"), three.event_time_ms) == (False, 8)
        assert ([each.sequence_id for each in page.messages], one.producer_name) == ([4, 5, 6, 10], MARKUP[:8])
        assert not any(each.truncated or each.in_chunks for each in page.messages)
        place = Position(LedgerId(four.ledger_id), EntryId(four.entry_id))
        for start, back, first in (
            (StartIndex(2), 0, 2), (StartMessage(place, four.batch_index, True), 0, 3), (StartTime(0), 0, 0),
            (StartMessage(Position(LedgerId(one.ledger_id), EntryId(one.entry_id)), 2, True), 0, 2),
            (StartEdge.LATEST, 4, 6), (StartIndex(2), 5, 0), (StartTime(four.append_time_ms + 10**9), 1, 9),
        ):  # fmt: skip
            page = await looker.read(start, back=back, limit=3)
            shown = [each.index for each in page.messages]
            assert (page.begin_index, shown) == (first, list(range(first, min(first + 3, 10)))), start
        for start in (StartEdge.LATEST, StartIndex(10), StartIndex(10**9)):
            page = await looker.read(start)
            assert (list(page.messages), page.begin_index, page.next_index) == ([], 10, 10)


@pytest.mark.parametrize("limit", [1, 3, 200])
async def test_search_gives_what_a_filter_wants_in_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Page by page: each match once, in order, and at the end all of the log was looked at."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted, other = await client.open(runner, "till"), await client.open(runner, "other")
        for number in range(20):
            values = [json.dumps({"order": 2 * number + at, "note": "für" if at else ""}).encode() for at in range(2)]
            payload = encode_values(values) + encode_keys([b"even", f"k{number}".encode()])
            for session in (granted, other) if number % 3 == 0 else (granted,):
                ids = [2 * number, 2 * number + 1]
                await client.stored(session, batch_of(session, ids, payload=payload))

        async def search(*, backwards: bool, **wanted: Any) -> list[int]:
            found: list[int] = []
            start: StartAt = StartEdge.LATEST if backwards else StartIndex(0)
            looked, at_end = 0, False
            while not at_end:
                page = await looker.read(start, limit=limit, backwards=backwards, filter=pb.MessageFilter(**wanted))
                found += [one.index for one in page.messages]
                looked += page.next_index - page.begin_index
                assert len(page.messages) <= limit
                at_end = page.begin_index == 0 if backwards else page.next_index == page.end_index == 54
                start = StartIndex(page.begin_index if backwards else page.next_index)
            assert looked == 54
            return found

        every = list((await looker.read(StartIndex(0), limit=200)).messages)
        monkeypatch.setattr(stored_page, "READ_BYTES", 300)
        for wanted, holds in (
            ({}, lambda _: True),
            ({"key": b"k7"}, lambda one: one.key == b"k7"),
            ({"text": "für".encode()}, lambda one: "für".encode() in one.value),
            ({"condition": ".order > 33"}, lambda one: json.loads(one.value)["order"] > 33),
            ({"producer_name": "other"}, lambda one: one.producer_name == "other"),
            ({"producer_name": "other", "condition": ".order == 12"}, lambda one: False),
        ):
            expected = [one.index for one in every if holds(one)]
            if "condition" in wanted and "producer_name" in wanted:
                expected = [one.index for one in every if one.producer_name == "other" and one.sequence_id == 12]
                assert len(expected) == 1
            assert await search(backwards=False, **wanted) == expected
            assert await search(backwards=True, **wanted) == expected[::-1]
        for wrong, field in (
            (pb.MessageFilter(condition="order"), "filter"),
            (pb.MessageFilter(producer_name="x"), "x"),
        ):
            with pytest.raises(InvalidArgument, match=field):
                await looker.read(StartIndex(0), filter=wrong)


async def test_search_backwards_names_what_cannot_be_read_and_goes_on() -> None:
    """What comes behind it is shown first."""
    reads = Reads(at(1, 2), at(1, 3))

    async def page(end: int) -> tuple[list[int], int, int, tuple[int, int]]:
        answer = pb.StoredMessagesAnswer(begin_index=end, next_index=end, end_index=10)
        request = pb.StoredMessagesRequest(limit=10, with_content=False)
        await asyncio.wait_for(StoredPage(answer, reads.reads, request, EVERY).fill_backwards(), DEADLINE_S)
        bad = answer.unreadable
        return (
            [one.index for one in answer.messages],
            answer.begin_index,
            answer.next_index,
            (bad.first_index, bad.count),
        )

    assert await page(10) == ([9, 8, 7, 6, 5], 5, 10, (0, 0))
    shown, begin, following, (first, count) = await page(5)
    assert (shown, following, first + count) == ([], 5, 5)
    assert begin == first
    while begin > 2:
        shown, begin, following, (first, count) = await page(begin)
        assert (shown, first + count) == ([], following)
    assert await page(2) == ([1, 0], 0, 2, (0, 0))


async def test_large_content_is_cut_at_the_owner_and_hidden_content_is_not_sent(tmp_path: Path) -> None:
    """5 MiB are not sent to show a hundred bytes of them. A page of large messages ends before its limit."""
    limits = OwnerLimits(message_bytes_max=8 << 20)
    async with owner_world(tmp_path, limits) as (world, channel):
        runner = await world.serve("orders")
        client, looker = PublishClient(channel), Looker(channel, runner)
        granted = await client.open(runner, "till")
        large = encode_values([b"5" * (5 << 20)])
        other = b"".join([encode_values([b"v"]), encode_keys([b"k" * 5000]), encode_properties([{"a": "b" * 20_000}])])
        await client.stored(granted, *(batch_of(granted, [number], payload=large) for number in range(3)))
        await client.stored(granted, batch_of(granted, [3], payload=other))
        page = await looker.read(StartIndex(0))
        assert page.ByteSize() < 2_000
        assert [(one.value, one.value_bytes, one.truncated) for one in page.messages] == [
            (b"5" * 100, 5 << 20, True)
        ] * 2
        assert (page.next_index, page.end_index) == (2, 4)
        page = await looker.read(StartIndex(2))
        last = page.messages[-1]
        assert (last.value, last.key, dict(last.properties), last.truncated) == (b"v", b"k" * 1024, {}, True)
        [hidden] = (await looker.read(StartIndex(3), with_content=False)).messages
        assert (hidden.value, hidden.HasField("key"), len(hidden.properties), hidden.value_bytes) == (b"", False, 0, 1)
        for name, wrong in (
            ("limit", 0), ("limit", MESSAGES_MAX + 1), ("value_bytes_max", VALUE_BYTES_MAX + 1),
        ):  # fmt: skip
            with pytest.raises(InvalidArgument, match=f"{name}={wrong}"):
                await looker.read(StartIndex(0), **{name: wrong})


async def test_message_in_chunks_shows_its_size() -> None:
    """Its chunks are not read."""
    entry = stored_entry(message())
    assert entry is not None
    [shown] = shown_messages(entry, entry.base_index, 10, with_content=True, value_bytes_max=100)
    assert (shown.in_chunks, shown.value_bytes, shown.value, shown.key) == (True, len(VALUE), b"", b"key")
    damaged = stored_entry(message()[:-1])
    assert damaged is not None
    with pytest.raises(CorruptEntry, match="cannot be read"):
        shown_messages(damaged, damaged.base_index, 10, with_content=True, value_bytes_max=100)


async def test_null_values_and_encrypted_ones_are_told_from_empty_ones() -> None:
    null = stored_entry(stored(batched([Sent(1, b"1"), Sent(2, None), Sent(3, b"")])))
    sealed = stored_entry(stored(encrypted(1, 3, count=1)))
    assert null is not None
    assert sealed is not None
    shown = [
        each for entry in (null, sealed) for each in shown_messages(entry, 40, 10, with_content=True, value_bytes_max=9)
    ]
    assert [(each.null_value, each.encrypted) for each in shown] == [
        (False, False), (True, False), (False, False), (False, True),
    ]  # fmt: skip


async def test_messages_that_cannot_be_read_are_named_and_the_next_page_goes_on() -> None:
    """What comes before them is shown first. They are not called missing. The same for a batch that cannot be decoded,
    as one of a later version."""
    reads = Reads(at(1, 2), at(1, 3))
    entries = reads.log.entries
    body = bytearray(body_of(entries[at(1, 5)]))
    body[peek_batch(body).ids_bytes + HEADER_BYTES] = Column.KEYS  # where the values should be
    header = peek_header(entries[at(1, 5)])._replace(body_bytes=len(body))
    entries[at(1, 5)] = encode_header(header, body, crc32c) + body
    request = pb.StoredMessagesRequest(limit=10, with_content=False)

    async def page(begin: int) -> tuple[list[int], int, tuple[int, int, str]]:
        answer = pb.StoredMessagesAnswer(begin_index=begin, next_index=begin, end_index=10)
        await asyncio.wait_for(StoredPage(answer, reads.reads, request, EVERY).fill(), DEADLINE_S)
        bad = answer.unreadable
        return [one.index for one in answer.messages], answer.next_index, (bad.first_index, bad.count, bad.reason)

    assert await page(0) == ([0, 1], 2, (0, 0, ""))
    shown, following, (first, count, reason) = await page(2)
    assert (shown, following, first, count) == ([], 5, 2, 3)
    assert "cannot read messages 2 to 4" in reason
    shown, following, (first, count, reason) = await page(5)
    assert (shown, following, first, count) == ([], 8, 5, 3)
    assert "entry 1:5 cannot be read" in reason
    assert await page(8) == ([8, 9], 10, (0, 0, ""))
