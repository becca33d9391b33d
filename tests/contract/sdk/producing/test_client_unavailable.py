"""Entries whose copies are all away, or proved lost: the reader gets an error, never a hang."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from rich.console import Console

import oncelog
from oncelog.cli.read.command import _batches
from oncelog.cli.read.skips import GapReport, SkipReport, WaitingReport, gap_lines, skip_lines
from oncelog.cli.read.told import WaitingHint
from oncelog.cli.read.whole import batches_up_to_now
from oncelog.core.errors import OncelogError
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from tests.cluster.until import until
from tests.contract.sdk.consuming.test_client_corruption import filled, numbered, rest
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 60.0


@pytest.mark.hazard("lost-too-early")
async def test_unavailable_entries_raise_and_the_reader_goes_on(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Every way to read raises what the owner reports, as often as it is reported. The entries come once they can."""
    topic = await filled(cluster, client)
    topic.away = {2}
    reader = await client.create_reader("flights")
    assert (await reader.read_batch(timeout=DEADLINE_S)).count == 4
    for _ in range(2):
        with pytest.raises(oncelog.errors.LedgerUnavailable, match="goes on trying") as raised:
            await reader.read_next(timeout=DEADLINE_S)
        assert raised.value.retriable
        assert raised.value.details == {"ledger_id": 3, "first": 2, "last": 2, "waiting_for": "a node"}
    with pytest.raises(oncelog.errors.LedgerUnavailable):
        await reader.read_batch(timeout=DEADLINE_S)
    with pytest.raises(oncelog.errors.LedgerUnavailable):
        await anext(aiter(reader))
    topic.away = set()
    found: list[tuple[int, bytes]] = []
    while len(found) < 8:
        try:
            message = await reader.read_next(timeout=DEADLINE_S)
        except oncelog.errors.LedgerUnavailable:
            continue  # reported before the node came back
        found.append((message.index, message.value))
    assert found == numbered(4, 5, 6, 7, 8, 9, 10, 11)


@pytest.mark.hazard("lost-too-early")
async def test_lost_entries_raise_each_time(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    topic = await filled(cluster, client)
    topic.lost = range(2, 4)
    reader = await client.create_reader("flights")
    assert (await reader.read_batch(timeout=DEADLINE_S)).count == 4
    for _ in range(2):
        with pytest.raises(
            oncelog.errors.EntriesLost, match=r"entries 3:2 to 3:3 .*on_corrupt='skip'.*3:4:0"
        ) as raised:
            await reader.read_next(timeout=DEADLINE_S)
        assert raised.value.details == {
            "ledger_id": 3, "first": 2, "last": 3, "next_ledger_id": 3, "next_entry_id": 4, "first_index": 4,
            "count": None,
        }  # fmt: skip


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("lost", [range(1, 3), range(2, 4)])
async def test_lost_range_is_skipped_and_reported_once(
    cluster: FakeCluster, client: oncelog.AsyncClient, lost: range
) -> None:
    """As for corrupt entries; a range counts each of its entries, and may reach to the end of the log."""
    topic = await filled(cluster, client)
    topic.lost = lost
    reader = await client.create_reader("flights", on_corrupt="skip")
    assert await rest(reader) == numbered(*(range(8, 12) if lost[0] == 1 else range(4)))
    assert reader.skipped.total == 2
    [skipped] = reader.skipped.newest
    assert (skipped.entry_id, skipped.last, skipped.count) == (lost[0], lost[-1], None)
    shown = io.StringIO()
    report = SkipReport(reader, Console(file=shown, width=400))
    [line] = skip_lines(report.new()).splitlines()
    assert json.loads(line)["skipped"]["last_position"] == f"3:{lost[-1]}"
    assert report.new() == []
    assert shown.getvalue().startswith(f"skipped entries 3:{lost[0]} to 3:{lost[-1]} (")


@pytest.mark.hazard("position-of-a-lost-part")
@pytest.mark.parametrize(("ledger", "following"), [(2, "3:0"), (9, "3:4")])
async def test_reader_of_a_lost_ledger_is_told_where_the_log_goes_on(
    cluster: FakeCluster, client: oncelog.AsyncClient, ledger: int, following: str
) -> None:
    """It never begins at the first message by itself. It can be sent on, or skip the lost part."""
    topic = await filled(cluster, client)
    start = oncelog.MessageId.parse(f"{ledger}:7:2")
    reader = await client.create_reader("flights", start=start)
    for _ in range(2):
        with pytest.raises(oncelog.errors.EntriesLost, match=f"entry {ledger}:7 .*{following}:0 with") as raised:
            await reader.read_next(timeout=DEADLINE_S)
        behind = f"{raised.value.details['next_ledger_id']}:{raised.value.details['next_entry_id']}"
        assert behind == following
    skipping = await client.create_reader("flights", start=start, on_corrupt="skip")
    named = oncelog.MessageId.parse(f"{following}:0")
    await reader.seek(named, inclusive=True)
    expected = [] if ledger == 9 else numbered(*range(12))
    assert await rest(reader) == expected
    assert await rest(skipping) == expected
    # Behind the last message nothing is available: the reader need not have heard yet that its ledger is lost.
    await until(lambda: skipping.skipped.total, DEADLINE_S)
    assert [each[:2] for each in skipping.skipped.newest] == [(ledger, 7)]
    assert topic.entries, "the log has messages that are not read twice"


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("start", [oncelog.Index(5), datetime.fromtimestamp(0, UTC)])
@pytest.mark.parametrize("kind", ["lost", "unreadable"])
async def test_reader_whose_start_is_lost_is_told_or_skips_it(
    cluster: FakeCluster, client: oncelog.AsyncClient, start: oncelog.Index | datetime, kind: str
) -> None:
    """Also where a time or an index names it. The reader ended, although it was to skip such entries, and the error
    did not say how to go on."""
    topic = await filled(cluster, client)
    first = 2 if isinstance(start, oncelog.Index) else 0
    setattr(topic, kind, range(first, first + 1) if kind == "lost" else {first})
    error = oncelog.errors.EntriesLost if kind == "lost" else oncelog.errors.UnreadableEntry
    reader = await client.create_reader("flights", start=start)
    with pytest.raises(error, match=f"on_corrupt='skip'.*at message id 3:{first + 1}:0"):
        await reader.read_next(timeout=DEADLINE_S)
    skipping = await client.create_reader("flights", start=start, on_corrupt="skip")
    found = await rest(skipping)
    assert found
    assert found == numbered(*range(found[0][0], 12))
    assert skipping.skipped.total == 1


async def test_read_of_a_whole_topic_says_what_it_waits_for(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The command line waits until its own timeout, and shows the reason meanwhile, once."""
    topic = await filled(cluster, client)
    topic.away = {2}
    reader = await client.create_reader("flights")
    shown = io.StringIO()
    waiting = WaitingReport(Console(file=shown, width=400))
    batches = aiter(batches_up_to_now(client, reader, timeout_s=8, unavailable=waiting.tell))
    assert (await anext(batches)).count == 4
    with pytest.raises(oncelog.errors.LedgerUnavailable):
        await anext(batches)
    assert shown.getvalue().count("waiting: ") == 1
    assert "entry 3:2 is away" in shown.getvalue()


async def test_read_of_a_whole_topic_that_times_out_names_what_it_waited_for(
    cluster: FakeCluster, client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a moment in which the reader has opened another stream, and has no reason: then the user read that no
    message arrived within 0.8 s. What was away before the batch before counts no more."""
    await filled(cluster, client)
    reader = await client.create_reader("flights")
    batch = await reader.read_batch(timeout=DEADLINE_S)
    away, late = oncelog.errors.LedgerUnavailable("entry 3:2 is away"), oncelog.errors.DeadlineExceeded("none arrived")
    answers: Iterator[oncelog.MessageBatch | OncelogError] = iter([away, late, away, batch, late])

    async def answer(_last: oncelog.MessageId, *, timeout: float | None) -> oncelog.MessageBatch:
        following = next(answers)
        if isinstance(following, OncelogError):
            raise following
        return following

    monkeypatch.setattr(reader, "batch_up_to", answer)
    with pytest.raises(oncelog.errors.LedgerUnavailable, match="3:2 is away"):
        await anext(aiter(batches_up_to_now(client, reader, timeout_s=DEADLINE_S)))
    batches = aiter(batches_up_to_now(client, reader, timeout_s=DEADLINE_S))
    assert await anext(batches) is batch
    with pytest.raises(oncelog.errors.DeadlineExceeded, match="none arrived"):
        await anext(batches)


async def test_read_that_follows_says_why_it_waits(
    cluster: FakeCluster, client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few storage nodes respond, so no owner can prove that it is the owner: the command waited in silence."""
    await filled(cluster, client)
    reader = await client.create_reader("flights")
    why = "fewer than 2 storage nodes respond"
    reads, asked = reader.read_batch, 0

    async def not_proved(*, timeout: float | None) -> oncelog.MessageBatch:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise oncelog.errors.DeadlineExceeded(f"none arrived within {timeout} s") from oncelog.errors.NotOwner(why)
        return await reads(timeout=timeout)

    monkeypatch.setattr(reader, "read_batch", not_proved)
    shown = io.StringIO()
    console = Console(file=shown, width=400)
    hint = WaitingHint(console, "messages of flights")
    batches = _batches(reader, WaitingReport(console).tell, hint, told_after_s=DEADLINE_S)
    assert (await anext(batches)).count == 4
    assert shown.getvalue() == f"waiting: {why}\n"


@pytest.mark.hazard("index-given-twice")
async def test_gap_in_the_numbers_is_reported_and_passed(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Where messages were trimmed, and behind a ledger that was given up, the numbers jump. The reader goes on, and
    reports which ones are missing and why."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"before")
    cluster.topic("flights").table.state.next_index += 100
    await producer.send(b"behind")
    cluster.topic("flights").give_up()
    again = await client.create_producer("flights", producer_name="importer")
    await again.send(b"later")
    reader = await client.create_reader("flights")
    later = 102 + GIVEN_UP_INDEXES
    assert await rest(reader) == [(0, b"before"), (101, b"behind"), (later, b"later")]
    assert reader.gaps == (2, (oncelog.Gap(1, 100, False), oncelog.Gap(102, later - 1, True)))
    assert "messages 1 to 100 are gone: they were trimmed" in caplog.text
    given_up = "messages may be missing: an operator has given up a ledger or storage nodes"
    assert f"{given_up}, and the numbers 102 to {later - 1} are left out" in caplog.text
    shown = io.StringIO()
    report = GapReport(reader, Console(file=shown, width=400))
    lines = [json.loads(line) for line in gap_lines(report.new()).splitlines()]
    assert lines[1] == {"gap": {"first_index": 102, "last_index": later - 1, "given_up": True}}
    assert report.new() == []
    assert [shown.getvalue().count(text) for text in ("are gone", "are left out")] == [1, 1]


async def test_reader_that_starts_below_the_first_kept_message_says_so(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """With the number that was wanted, and the last one that is gone. A start at a kept message says nothing."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"trimmed")
    cluster.topic("flights").table.state.next_index += 100
    await producer.send(b"kept")
    kept = await client.create_reader("flights", start=oncelog.Index(101))
    assert await rest(kept) == [(101, b"kept")]
    assert kept.gaps == (0, ())
    reader = await client.create_reader("flights", start=oncelog.Index(7))
    assert await rest(reader) == [(101, b"kept")]
    assert reader.gaps == (1, (oncelog.Gap(7, 100, False),))
    assert "messages 7 to 100 are gone: they were trimmed" in caplog.text


async def test_reader_of_a_trimmed_message_id_says_so(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """With the first number that is kept. How many messages behind the id are gone is unknown."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"trimmed")
    cluster.topic("flights").table.state.next_index += 100
    start = (await producer.send(b"kept")).message_id
    assert start is not None
    cluster.topic("flights").trimmed_below = 101
    reader = await client.create_reader("flights", start=start, inclusive=True)
    assert await rest(reader) == [(101, b"kept")]
    assert reader.gaps == (1, (oncelog.Gap(None, 100, False),))
    assert "the start was trimmed, and the first message kept is 101" in caplog.text
