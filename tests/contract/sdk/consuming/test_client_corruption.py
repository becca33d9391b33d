"""Unreadable entries: a reader stops with advice, or skips the entry and reports it."""

import asyncio
import io
import json

import pytest
from crc32c import crc32c
from rich.console import Console

import oncelog
from oncelog.cli.read.skips import SkipReport, skip_lines
from oncelog.cli.read.whole import batches_up_to_now
from oncelog.client.values.corruption import Corruption, OnCorrupt
from oncelog.core.errors import CorruptEntry, InvalidArgument, UnreadableEntry
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.entry import EntryKind, encode_header
from oncelog.core.ids import Generation, ProducerId
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER, FakeTopic

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 30.0


async def filled(cluster: FakeCluster, client: oncelog.AsyncClient, count: int = 12) -> FakeTopic:
    """Messages b"0" to b"b", four in an entry: entries 1 to 3 behind the grant."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=4 * 5)
    await producer.send_many([b"%x" % i for i in range(count)])
    return cluster.topic("flights")


def lie(topic: FakeTopic, at: int) -> None:
    """Put a batch there whose payload is no zlib, as an older owner would have stored it: its checksums are sound."""
    header, _ = topic.entries[at]
    body = encode_batch(
        b"no zlib", producer_id=ProducerId(1), generation=Generation(1), first=0, last=header.count - 1,
        count=header.count, publish_time_ms=0, checksum=crc32c, compression=Compression.ZLIB, payload_raw_bytes=500,
    )  # fmt: skip
    header = header._replace(body_bytes=len(body))
    topic.entries[at] = (header, encode_header(header, body, crc32c) + body)


async def rest(reader: oncelog.AsyncReader) -> list[tuple[int, bytes]]:
    """(index, value) of everything that is there now."""
    found = []
    while await reader.has_message_available():
        message = await reader.read_next(timeout=DEADLINE_S)
        found.append((message.index, message.value))
    return found


def numbered(*numbers: int) -> list[tuple[int, bytes]]:
    return [(number, b"%x" % number) for number in numbers]


async def test_reader_stops_at_a_malformed_entry_with_advice(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A second read must not skip the entry silently, and the advice in the error must work."""
    lie(await filled(cluster, client), 2)
    reader = await client.create_reader("flights")
    assert [(await reader.read_next(timeout=DEADLINE_S)).index for _ in range(4)] == [0, 1, 2, 3]
    for _ in range(3):
        with pytest.raises(CorruptEntry, match=r"entry 3:2 \(messages 4 to 7\).*on_corrupt='skip'.*3:3:0") as raised:
            await reader.read_next(timeout=DEADLINE_S)
        assert raised.value.details == {"ledger_id": 3, "entry_id": 2, "first_index": 4, "count": 4}
    behind = await client.create_reader("flights", start=oncelog.MessageId.parse("3:3:0"), inclusive=True)
    assert await rest(behind) == numbered(8, 9, 10, 11)


async def test_reader_skips_and_reports_a_malformed_entry(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages behind the entry keep their index."""
    lie(await filled(cluster, client), 2)
    reader = await client.create_reader("flights", on_corrupt="skip")
    assert await rest(reader) == numbered(0, 1, 2, 3, 8, 9, 10, 11)
    [skipped] = reader.skipped.newest
    assert skipped[:4] == (LEDGER, 2, 4, 4)
    assert "compressed payload is damaged" in skipped.reason
    assert reader.skipped.total == 1
    assert "skipped entry 3:2 (messages 4 to 7)" in caplog.text


async def test_reader_started_inside_a_malformed_entry_reports_the_skipped_messages(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    lie(await filled(cluster, client), 2)
    start = oncelog.MessageId.parse("3:2:1")
    reader = await client.create_reader("flights", start=start, on_corrupt="skip")
    assert await rest(reader) == numbered(8, 9, 10, 11)
    assert reader.skipped.newest[0][:4] == (LEDGER, 2, 6, 2)


@pytest.mark.parametrize("last", [True, False])
async def test_reader_skips_an_entry_whose_copies_are_all_damaged(
    cluster: FakeCluster, client: oncelog.AsyncClient, last: bool
) -> None:
    """The owner names the entry; only the index of the next message shows how many messages it held."""
    topic = await filled(cluster, client)
    topic.unreadable = {3} if last else {2}
    reader = await client.create_reader("flights", on_corrupt="skip")
    assert await rest(reader) == numbered(*(range(8) if last else (0, 1, 2, 3, 8, 9, 10, 11)))
    assert reader.skipped.newest[0][:4] == ((LEDGER, 3, 8, None) if last else (LEDGER, 2, 4, None))
    assert not await reader.has_message_available()


async def test_reader_stops_at_an_entry_whose_copies_are_all_damaged(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    topic = await filled(cluster, client)
    topic.unreadable = {2}
    reader = await client.create_reader("flights")
    assert (await reader.read_batch(timeout=DEADLINE_S)).count == 4
    for _ in range(2):
        with pytest.raises(UnreadableEntry, match=r"entry 3:2 \(messages from index 4 on\).*damaged everywhere.*skip"):
            await reader.read_next(timeout=DEADLINE_S)


async def test_entry_reported_twice_is_skipped_once() -> None:
    """A reader that requests the next entry and gets a report of the same one must not loop forever."""
    corruption = Corruption("flights", OnCorrupt.SKIP)
    error = UnreadableEntry("entry 3:2 is damaged everywhere", ledger_id=3, entry_id=2)
    assert corruption.unreadable(error) == (3, 3)
    assert corruption.unreadable(error) is None
    assert corruption.unreadable(UnreadableEntry("of no name")) is None
    assert corruption.skipped.total == 1


async def test_other_choices_than_raise_and_skip_are_refused(client: oncelog.AsyncClient) -> None:
    with pytest.raises(InvalidArgument, match="on_corrupt"):
        await client.create_reader("flights", on_corrupt="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_read_command_prints_skipped_entries_and_ends(
    cluster: FakeCluster, client: oncelog.AsyncClient, at: int
) -> None:
    """Also if the last entry is unreadable: the current end of the log is behind it."""
    lie(await filled(cluster, client), at)
    reader = await client.create_reader("flights", on_corrupt="skip")
    shown = io.StringIO()
    skips = SkipReport(reader, Console(file=shown, width=400))
    seen: list[object] = []

    def tell() -> None:
        seen.extend(json.loads(line)["skipped"]["position"] for line in skip_lines(skips.new()).splitlines())

    async with asyncio.timeout(DEADLINE_S):
        async for batch in batches_up_to_now(client, reader, timeout_s=DEADLINE_S):
            tell()
            seen += [message.index for message in batch]
    tell()
    entries = {1: list(range(4)), 2: list(range(4, 8)), 3: list(range(8, 12))}
    expected: list[object] = []
    for entry, numbers in entries.items():
        expected += numbers if entry != at else [f"3:{at}"]
    assert seen == expected
    assert shown.getvalue().startswith(f"skipped entry 3:{at} (messages {entries[at][0]} to {entries[at][-1]}): ")
    assert skips.new() == []


async def test_entry_without_a_batch_is_skipped(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Its header is intact, so its position and message count are known."""
    topic = await filled(cluster, client)
    header, _ = topic.entries[2]
    header = header._replace(body_bytes=3)
    assert header.kind == EntryKind.MESSAGES
    topic.entries[2] = (header, encode_header(header, b"???", crc32c) + b"???")
    reader = await client.create_reader("flights", on_corrupt="skip")
    assert await rest(reader) == numbered(0, 1, 2, 3, 8, 9, 10, 11)
    assert reader.skipped.newest[0][:4] == (LEDGER, 2, 4, 4)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("unreadable", [{2}, {2, 3}])
async def test_consumer_acknowledges_what_cannot_be_read(
    cluster: FakeCluster, client: oncelog.AsyncClient, kind: str, unreadable: set[int]
) -> None:
    """With "raise" it ends, and the error names the messages; with "skip" it goes on, and the next one has no error."""
    topic = await filled(cluster, client)
    topic.unreadable = unreadable

    async def consume(**options: str) -> oncelog.AsyncConsumer:
        return await client.subscribe("flights", subscription="s", type=kind, start=oncelog.EARLIEST, **options)  # type: ignore[arg-type]

    async with await consume() as consumer:
        await until(lambda: consumer.failure is not None, DEADLINE_S)
        assert isinstance(consumer.failure, UnreadableEntry)
        assert consumer.failure.details["first_index"] == 4
    async with await consume(on_corrupt="skip") as consumer:
        last = 8 if unreadable == {2} else 4
        got = [await consumer.receive(timeout=DEADLINE_S) for _ in range(last)]
        await until(lambda: bool(consumer.skipped.total), DEADLINE_S)
        await consumer.ack(got)
    assert sorted(message.index for message in got) == [0, 1, 2, 3, 8, 9, 10, 11][:last]
    assert {(each.first_index, each.count) for each in consumer.skipped.newest} == {(4, 12 - last)}
    async with await consume() as consumer:
        assert topic.ack_state.subscriptions[topic.ack_state.names["s"]].acks.mark_delete == 12
        assert not await consumer.receive_batch(max_wait=0)
