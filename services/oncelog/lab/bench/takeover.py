"""Takeover: what clients feel when processes die. All with default settings, on a cluster of the bench's own.

failover             single messages at a fixed rate; the topic's owner gets kill -9; the longest gap between two
                     acknowledgements around that moment, as the client sees it. Median and worst of N
frozen owner         the same, but nothing comes back from the owner, as from a host that has vanished: then silence
                     proves nothing, and its session has to expire
storage node         the same load; one storage node gets kill -9
serving              ms from the new owner's start (acquire) to serving (open), with 1000 entries to replay, and
replay               the messages that it replayed by the seconds between the snapshot (C) and the end of the log (D)
restarted producer   create_producer under a name that the log knows, on a connected client, and its first
                     acknowledgement: both together

Phases, in ms after the assignment: recover (last ledger fenced and closed), load_snapshot, replay, open (new ledger).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.producer import AsyncProducer
from oncelog.lab.bench.cluster import Cluster, Process, freeze, kill
from oncelog.lab.bench.figures import Row, Target, median, percentile, rounded
from oncelog.lab.bench.limits import DRAIN_S
from oncelog.lab.bench.loads import SendFuture, make_values
from oncelog.lab.bench.publish import Tell
from oncelog.lab.bench.settings import TakeoverSettings

OWNERS, STORAGE_NODES = 2, 3
_COUNTS = {"owner": OWNERS, "storage": STORAGE_NODES}
_TAIL_S = 0.5
_LOOK_EVERY_S = 0.01

Takeover = dict[str, Any]
Strike = Callable[[Process], float]


@dataclass(slots=True)
class Gap:
    """One death under load. gap_s: between two acknowledgements, around it; takeover: what the new owner tells."""

    gap_s: float
    takeover: Takeover | None = None


async def takeover_rows(cluster: Cluster, settings: TakeoverSettings, tell: Tell) -> list[Row]:
    """All rows. The cluster must be the bench's own, with two owners and three storage nodes."""
    async with await cluster.connect() as client:
        bench = TakeoverBench(cluster, client, settings)
        tell(f"kill -9 of the owner, {settings.kills} times")
        rows = _failover_rows([await bench.owner_dies(kill) for _ in range(settings.kills)])
        tell(f"kill -9 of a storage node, {settings.storage_kills} times")
        rows.append(_storage_row([await bench.storage_node_dies(number) for number in range(settings.storage_kills)]))
        tell(f"takeover with {settings.replay_entries} entries to replay, {settings.replays} times")
        rows += _replay_rows([await bench.replay(number) for number in range(settings.replays)], settings)
        tell(f"restarted producers, {settings.restarts} times")
        rows.append(_restart_row(await bench.restarts()))
        if settings.freezes:
            tell(f"an owner falls silent, {settings.freezes} times")
            rows.append(_frozen_row([await bench.owner_dies(freeze) for _ in range(settings.freezes)]))
    return rows


class TakeoverBench:
    """Kills processes of one cluster, and measures what one client sees of it."""

    def __init__(self, cluster: Cluster, client: AsyncClient, settings: TakeoverSettings) -> None:
        self._cluster = cluster
        self._client = client
        self._settings = settings

    async def owner_dies(self, strike: Strike) -> Gap:
        """Strike the owner of a topic under load."""
        topic = "bench-failover"
        await self._cluster.until_all_serve(_COUNTS)
        producer = await self._client.create_producer(topic, producer_name="bench")
        victim = await self._cluster.owner_of(topic)
        gap_s = await self._gap_around(producer, lambda: strike(victim))
        if strike is freeze:
            kill(victim)  # the cluster starts it again; what is frozen would stay
        takeovers = (await self._cluster.stats(topic))["takeovers"]
        return Gap(gap_s, takeovers[-1] if takeovers else None)

    async def storage_node_dies(self, number: int) -> Gap:
        """Strike one storage node after the other, under load."""
        await self._cluster.until_all_serve(_COUNTS)
        nodes = [process for process in self._cluster.processes() if process.role == "storage"]
        victim = nodes[number % len(nodes)]
        producer = await self._client.create_producer("bench-storage", producer_name="bench")
        return Gap(await self._gap_around(producer, lambda: kill(victim)))

    async def _gap_around(self, producer: AsyncProducer, strike: Callable[[], float]) -> float:
        """Send at the rate, strike after the lead, and close a moment after acknowledgements have come back."""
        settings = self._settings
        acknowledged: list[float] = []
        struck: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        load = asyncio.get_running_loop().create_task(self._load(producer, acknowledged, struck))
        try:
            await asyncio.sleep(settings.lead_seconds)
            if load.done():
                await load  # raises why
            struck.set_result(strike())
            if not await load:
                acknowledged.append(time.perf_counter())  # the gap is at least as long as it was watched
        finally:
            load.cancel()
            await producer.close(flush=False)
        return longest_gap(acknowledged, since=struck.result() - settings.lead_seconds / 2)

    async def _load(self, producer: AsyncProducer, acknowledged: list[float], struck: "asyncio.Future[float]") -> bool:
        """Paced sends until _TAIL_S after acknowledgements flow again. Returns False where they never did."""
        settings = self._settings
        value = make_values(settings.message_bytes, 1)[0]
        period_s = 1 / settings.rate
        began = time.perf_counter()
        count = 0
        came_back: float | None = None
        pending = []
        while came_back is None or time.perf_counter() - came_back < _TAIL_S:
            sent_at = time.perf_counter()
            if struck.done() and sent_at - struck.result() > settings.gap_seconds_max:
                return False
            future = producer.send_nowait(value)
            pending.append(future)
            future.add_done_callback(partial(_note, acknowledged))
            if came_back is None and struck.done() and acknowledged:
                last = acknowledged[-1]
                # A moment after the strike, acknowledgements may still arrive that were on their way.
                if last - struck.result() > _IN_FLIGHT_S and sent_at - last < _IN_FLIGHT_S:
                    came_back = last
            count += 1
            await asyncio.sleep(max(0.0, began + count * period_s - time.perf_counter()))
        async with asyncio.timeout(DRAIN_S):
            for future in pending:
                await future
        return True

    async def replay(self, number: int) -> tuple[Takeover, int]:
        """A topic with entries that no snapshot covers; its owner dies. Returns (takeover, messages to replay)."""
        settings = self._settings
        topic = f"bench-replay-{number}"
        await self._cluster.until_all_serve(_COUNTS)
        values = make_values(settings.message_bytes, settings.replay_messages_per_entry)
        async with await self._client.create_producer(topic, producer_name="bench") as producer:
            # One entry is the producer's own; one more would make a snapshot due.
            for _ in range(settings.replay_entries - 2):
                await producer.send_many(values)
            kill(await self._cluster.owner_of(topic))
            async with asyncio.timeout(settings.gap_seconds_max):
                await producer.send_many(values)
            takeover = (await self._cluster.stats(topic))["takeovers"][-1]
        return takeover, (settings.replay_entries - 2) * len(values)

    async def restarts(self) -> list[float]:
        """Seconds from create_producer to the first acknowledgement."""
        seconds = []
        await self._cluster.until_all_serve(_COUNTS)
        for _ in range(self._settings.restarts + 1):
            began = time.perf_counter()
            async with await self._client.create_producer("bench-restart", producer_name="bench") as producer:
                await producer.send(b"first")
                seconds.append(time.perf_counter() - began)
        return seconds[1:]  # the first one connects


def longest_gap(moments: Sequence[float], *, since: float) -> float:
    """Seconds of the longest pause between two moments, ascending, of those after `since`."""
    after = [moment for moment in moments if moment > since]
    return max((later - earlier for earlier, later in pairwise(after)), default=0.0)


def _note(acknowledged: list[float], future: SendFuture) -> None:
    if not future.cancelled() and future.exception() is None:
        acknowledged.append(time.perf_counter())


#: Longer than any acknowledgement is on its way, shorter than any takeover.
_IN_FLIGHT_S = 0.05


def _failover_rows(gaps: list[Gap]) -> list[Row]:
    ms = [gap.gap_s * 1000 for gap in gaps]
    phases = _median_phases([gap.takeover for gap in gaps if gap.takeover])
    detail: dict[str, object] = {"gaps_ms": rounded(ms, 1), "phases_ms": phases}
    return [
        Row(
            f"failover, owner killed, median of {len(ms)}",
            median(ms),
            "ms",
            target=Target(1000, at_most=True),
            detail=detail,
            note=_shown(phases),
        ),
        Row(f"failover, owner killed, worst of {len(ms)}", max(ms), "ms", target=Target(2000, at_most=True)),
    ]


def _frozen_row(gaps: list[Gap]) -> Row:
    ms = [gap.gap_s * 1000 for gap in gaps]
    detail: dict[str, object] = {"gaps_ms": rounded(ms, 1)}
    return Row("failover, owner silent, worst", max(ms), "ms", target=Target(7000, at_most=True), detail=detail)


def _storage_row(gaps: list[Gap]) -> Row:
    ms = [gap.gap_s * 1000 for gap in gaps]
    detail: dict[str, object] = {"gaps_ms": rounded(ms, 1)}
    return Row("storage node killed, worst gap", max(ms), "ms", target=Target(300, at_most=True), detail=detail)


def _replay_rows(replays: list[tuple[Takeover, int]], settings: TakeoverSettings) -> list[Row]:
    serving = [takeover["ms"] for takeover, _ in replays]
    rates = []
    for takeover, messages in replays:
        phases = takeover["phases_ms"]
        replay_s = max(phases["replay"] - phases["load_snapshot"], 0.001) / 1000
        rates.append(messages / replay_s)
    entries = [takeover["replayed_entries"] for takeover, _ in replays]
    phases = _median_phases([takeover for takeover, _ in replays])
    detail: dict[str, object] = {"replayed_entries": entries, "phases_ms": phases, "serving_ms": rounded(serving, 1)}
    note = f"{settings.replay_messages_per_entry} messages of {settings.message_bytes} B an entry"
    return [
        Row("replay on takeover", median(rates), "msg/s", target=Target(200_000), detail=detail, note=note),
        Row(
            f"serving after ownership, {max(entries)} entries to replay",
            max(serving),
            "ms",
            target=Target(1000, at_most=True),
            detail=detail,
            note=_shown(phases),
        ),
    ]


def _restart_row(seconds: list[float]) -> Row:
    ms = sorted(each * 1000 for each in seconds)
    detail: dict[str, object] = {"p50_ms": round(median(ms), 3), "p99_ms": round(percentile(ms, 0.99), 3)}
    return Row(
        "restarted producer, create_producer to first ack",
        median(ms),
        "ms",
        target=Target(10, at_most=True),
        detail=detail,
        note=f"p99 {percentile(ms, 0.99):.1f} ms of {len(ms)}",
    )


def _median_phases(takeovers: list[Takeover]) -> dict[str, float]:
    names = dict.fromkeys(name for takeover in takeovers for name in takeover["phases_ms"])
    return {
        name: round(median([each["phases_ms"][name] for each in takeovers if name in each["phases_ms"]]), 1)
        for name in names
    }


def _shown(phases: dict[str, float]) -> str:
    return " ".join(f"{name} {ms:g}" for name, ms in phases.items() if name != "acquire")
