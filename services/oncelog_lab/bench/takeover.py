"""Takeover: the pauses of a client when processes die, on a standalone cluster with default settings.

failover             single messages at a fixed rate; the topic's owner is killed with SIGKILL; the longest time between
                     two acknowledgements around the kill. Median and worst of N
frozen owner         the same with SIGSTOP: like an unreachable host, the owner loses the topic when its session expires
storage node         the same load; one storage node is killed with SIGKILL
serving              ms from the assignment of the topic to a new owner until it serves, with 1000 entries to replay
replay               replayed messages per second between the phases load_snapshot and replay
restarted producer   create_producer with a known name on a connected client, together with its first acknowledgement

The end of each phase, in ms after the assignment: recover (last ledger fenced and closed), load_snapshot, replay,
open (new ledger).
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog_lab.acknowledgements import AckPauses, longest_pause_ms
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, percentile, rounded
from oncelog_lab.bench.loads import SendFuture
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import STORAGE_NODES, LabCluster, signal_process
from oncelog_lab.values import make_values
from oncelog_lab.waiting import until

OWNERS = 2
_COUNTS = {"owner": OWNERS, "storage": STORAGE_NODES}
_TAIL_S = 0.5
#: Longer than the way of an acknowledgement, shorter than any takeover.
_IN_FLIGHT_S = 0.05
_CLIENT = "bench"
#: Load before each kill, and at most after it.
_LEAD_S, _GAP_S_MAX = 1.0, 30.0
_REPLAY_MESSAGES_PER_ENTRY = 200

#: A takeover as REST shows it.
TakeoverStats = dict[str, Any]


@dataclass(slots=True)
class FailoverGap:
    """One kill under load. gap_ms: the longest pause around it. takeover: as the new owner reports it."""

    gap_ms: float
    takeover: TakeoverStats | None = None


async def takeover_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """All rows."""
    cluster = await stack.cluster(owners=OWNERS)
    async with await cluster.connect() as client:
        bench = TakeoverBench(cluster, client, settings)
        tell(f"SIGKILL for the owner, {settings.kills} times")
        rows = _failover_rows([await bench.kill_owner(signal.SIGKILL) for _ in range(settings.kills)])
        tell(f"SIGKILL for a storage node, {settings.storage_kills} times")
        gaps = [await bench.kill_storage_node(number) for number in range(settings.storage_kills)]
        rows.append(_worst_row("storage node killed, worst gap", gaps, 300))
        tell(f"takeover with {settings.replay_entries} entries to replay, {settings.replays} times")
        rows += _replay_rows([await bench.replay(number) for number in range(settings.replays)], settings)
        tell(f"restarted producers, {settings.restarts} times")
        rows.append(_restart_row(await bench.restarts()))
        if settings.freezes:
            tell(f"SIGSTOP for the owner, {settings.freezes} times")
            gaps = [await bench.kill_owner(signal.SIGSTOP) for _ in range(settings.freezes)]
            rows.append(_worst_row("failover, owner silent, worst", gaps, 7000))
    return rows


class TakeoverBench:
    """Kills processes of one cluster, and measures the pauses of one client."""

    def __init__(self, cluster: LabCluster, client: AsyncClient, settings: BenchSettings) -> None:
        self._cluster = cluster
        self._client = client
        self._settings = settings

    async def kill_owner(self, number: signal.Signals) -> FailoverGap:
        """Send a signal to the owner of a topic under load."""
        topic = "bench-failover"
        await self._cluster.until_serving(_COUNTS)
        producer = await self._client.create_producer(topic, producer_name="bench")
        victim = await self._cluster.owner_of(topic)
        gap_ms = await self._gap_around(producer, lambda: signal_process(victim, number))
        if number is signal.SIGSTOP:
            signal_process(victim, signal.SIGKILL)  # so that the cluster starts it again
        takeovers = (await self._cluster.stats(topic))["takeovers"]
        return FailoverGap(gap_ms, takeovers[-1] if takeovers else None)

    async def kill_storage_node(self, number: int) -> FailoverGap:
        """Kill one storage node after the other under load."""
        await self._cluster.until_serving(_COUNTS)
        nodes = self._cluster.serving("storage")
        victim = nodes[number % len(nodes)]
        producer = await self._client.create_producer("bench-storage", producer_name="bench")
        return FailoverGap(await self._gap_around(producer, lambda: signal_process(victim, signal.SIGKILL)))

    async def _gap_around(self, producer: AsyncProducer, kill: Callable[[], None]) -> float:
        """Send at a fixed rate and kill after the lead time. Returns the longest pause around the kill, in ms."""
        pauses = AckPauses()
        killed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        load = asyncio.get_running_loop().create_task(self._load(producer, pauses, killed))
        try:
            await asyncio.sleep(_LEAD_S)
            # A pause begins with an acknowledgement. On a busy machine none may have come yet.
            await until(lambda: bool(pauses.pauses) or load.done(), _GAP_S_MAX, "acknowledgements before the kill")
            if load.done():
                await load  # raises its error
            killed_at_s = time.monotonic()
            kill()
            killed.set_result(killed_at_s)
            if not await load:
                pauses.acknowledged(_CLIENT)  # the pause is at least as long as the load waited
        finally:
            load.cancel()
            await producer.close(flush=False)
        return longest_pause_ms(pauses.pauses, killed_at_s) or 0.0

    async def _load(self, producer: AsyncProducer, pauses: AckPauses, killed: "asyncio.Future[float]") -> bool:
        """Send until _TAIL_S after acknowledgements arrive again. Returns False if they never do."""
        settings = self._settings
        value = make_values(settings.message_bytes, 1)[0]
        period_s = 1 / settings.rate
        began = time.monotonic()
        last_s = 0.0
        resumed_at: float | None = None
        pending = []

        def acknowledged(future: SendFuture) -> None:
            nonlocal last_s
            if not future.cancelled() and future.exception() is None:
                last_s = time.monotonic()
                pauses.acknowledged(_CLIENT, last_s)

        while resumed_at is None or time.monotonic() - resumed_at < _TAIL_S:
            sent_at = time.monotonic()
            if killed.done() and sent_at - killed.result() > _GAP_S_MAX:
                return False
            future = producer.send_nowait(value)
            pending.append(future)
            future.add_done_callback(acknowledged)
            # Shortly after the kill, acknowledgements may arrive that were sent before it.
            if resumed_at is None and killed.done() and last_s - killed.result() > _IN_FLIGHT_S > sent_at - last_s:
                resumed_at = last_s
            await asyncio.sleep(max(0.0, began + len(pending) * period_s - time.monotonic()))
        async with asyncio.timeout(DRAIN_S):
            for future in pending:
                await future
        return True

    async def replay(self, number: int) -> tuple[TakeoverStats, int]:
        """Kill the owner of a topic with entries after the last snapshot. Returns (takeover, messages to replay)."""
        settings = self._settings
        topic = f"bench-replay-{number}"
        await self._cluster.until_serving(_COUNTS)
        values = make_values(settings.message_bytes, _REPLAY_MESSAGES_PER_ENTRY)
        async with await self._client.create_producer(topic, producer_name="bench") as producer:
            # The opening of the producer is one entry. One entry more would trigger a snapshot.
            for _ in range(settings.replay_entries - 2):
                await producer.send_many(values)
            signal_process(await self._cluster.owner_of(topic), signal.SIGKILL)
            async with asyncio.timeout(_GAP_S_MAX):
                await producer.send_many(values)
            takeover = (await self._cluster.stats(topic))["takeovers"][-1]
        return takeover, (settings.replay_entries - 2) * len(values)

    async def restarts(self) -> list[float]:
        """Seconds from create_producer to the first acknowledgement."""
        seconds = []
        await self._cluster.until_serving(_COUNTS)
        for _ in range(self._settings.restarts + 1):
            began = time.perf_counter()
            async with await self._client.create_producer("bench-restart", producer_name="bench") as producer:
                await producer.send(b"first")
                seconds.append(time.perf_counter() - began)
        return seconds[1:]  # without the first one, which connects


def _ms_row(what: str, ms: float, at_most: float, detail: dict[str, object], note: str = "") -> BenchRow:
    return BenchRow(what, ms, "ms", target=FigureTarget(at_most, at_most=True), detail=detail, note=note)


def _failover_rows(gaps: list[FailoverGap]) -> list[BenchRow]:
    ms = [gap.gap_ms for gap in gaps]
    phases = _median_phases([gap.takeover for gap in gaps if gap.takeover])
    detail: dict[str, object] = {"gaps_ms": rounded(ms, 1), "phases_ms": phases}
    return [
        _ms_row(f"failover, owner killed, median of {len(ms)}", median(ms), 1000, detail, _shown(phases)),
        _ms_row(f"failover, owner killed, worst of {len(ms)}", max(ms), 2000, {}),
    ]


def _worst_row(what: str, gaps: list[FailoverGap], at_most: float) -> BenchRow:
    ms = [gap.gap_ms for gap in gaps]
    return _ms_row(what, max(ms), at_most, {"gaps_ms": rounded(ms, 1)})


def _replay_rows(replays: list[tuple[TakeoverStats, int]], settings: BenchSettings) -> list[BenchRow]:
    serving = [takeover["ms"] for takeover, _ in replays]
    rates = []
    for takeover, messages in replays:
        phases = takeover["phases_ms"]
        rates.append(messages / max(phases["replay"] - phases["load_snapshot"], 0.001) * 1000)
    entries = [takeover["replayed_entries"] for takeover, _ in replays]
    phases = _median_phases([takeover for takeover, _ in replays])
    detail: dict[str, object] = {"replayed_entries": entries, "phases_ms": phases, "serving_ms": rounded(serving, 1)}
    note = f"{_REPLAY_MESSAGES_PER_ENTRY} messages of {settings.message_bytes} B an entry"
    what = f"serving after ownership, {max(entries)} entries to replay"
    return [
        BenchRow("replay on takeover", median(rates), "msg/s", target=FigureTarget(200_000), detail=detail, note=note),
        _ms_row(what, max(serving), 1000, detail, _shown(phases)),
    ]


def _restart_row(seconds: list[float]) -> BenchRow:
    ms = sorted(each * 1000 for each in seconds)
    p99 = percentile(ms, 0.99)
    detail: dict[str, object] = {"p50_ms": round(median(ms), 3), "p99_ms": round(p99, 3)}
    note = f"p99 {p99:.1f} ms of {len(ms)}"
    return _ms_row("restarted producer, create_producer to first ack", median(ms), 10, detail, note)


def _median_phases(takeovers: list[TakeoverStats]) -> dict[str, float]:
    names = dict.fromkeys(name for takeover in takeovers for name in takeover["phases_ms"])
    return {
        name: round(median([each["phases_ms"][name] for each in takeovers if name in each["phases_ms"]]), 1)
        for name in names
    }


def _shown(phases: dict[str, float]) -> str:
    return " ".join(f"{name} {ms:g}" for name, ms in phases.items() if name != "acquire")
