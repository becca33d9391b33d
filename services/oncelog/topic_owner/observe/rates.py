"""How fast messages come and go at this owner: samples of what it counts anyway, one each 10 s, for an hour.

A sample of a topic takes about two microseconds and some more for each of its subscriptions. Samples of many topics are
taken in slices, so that publishing does not wait for all of them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import TopicId
from oncelog.core.topic.serving import Serving
from oncelog.core.topic.topic_rates import SubscriptionCounts, TopicRates
from oncelog.runtime.telemetry import LATENCY_BUCKETS_S
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import observation_pb2 as pb

SAMPLE_MS = 10_000
SAMPLES_KEPT = 360
#: Topics that are sampled at once.
_SLICE = 250
#: {field of a sample: verdict of a message, as the statistics of its topic count it}
_VERDICTS = {"duplicates": "duplicate", "stale": "stale_sequence", "unverified": "below_mark"}
_NO_VERDICTS = (0,) * len(_VERDICTS)


class _Sampled(NamedTuple):
    """A topic at the last sample. serving: what it was served by. verdicts: messages that got each of _VERDICTS."""

    serving: Serving
    rates: TopicRates
    verdicts: tuple[int, ...]


class OwnerRates:
    """`run` lives as long as the process."""

    def __init__(self, topics: TopicRegistry, metrics: OwnerMetrics) -> None:
        self._topics = topics
        self._metrics = metrics
        self._samples: deque[pb.RatesSample] = deque(maxlen=SAMPLES_KEPT)
        self._of: dict[TopicId, _Sampled] = {}
        #: messages that got each of _VERDICTS since the last sample
        self._refused = list(_NO_VERDICTS)
        #: as counted by this owner since its start, up to the last sample
        self._at_ms = _running_ms()
        self._counts = self._counted()
        self._latencies = list(metrics.publish_buckets)
        self._acknowledged = 0

    async def run(self) -> None:
        """Take samples, forever."""
        while True:
            await asyncio.sleep(SAMPLE_MS / 1000)
            await self.sample(now_ms=_running_ms())

    async def sample(self, *, now_ms: int) -> None:
        """Sample every topic, then what this owner counts. now_ms: a clock that is never set."""
        runners, sampled = list(self._topics), dict[TopicId, _Sampled]()
        for first in range(0, len(runners), _SLICE):
            for runner in runners[first : first + _SLICE]:
                serving = runner.core.serving
                if serving is not None:
                    # What is served again counts from 0 again.
                    rates = self.of(runner) or TopicRates()
                    found = rates.sample(serving.log.table.state.next_index, _counts(serving), now_ms)
                    self._acknowledged += found.acknowledged
                    sampled[runner.topic_id] = _Sampled(serving, rates, _verdicts(serving))
            await asyncio.sleep(0)
        self._count_refused(sampled)
        self._of = sampled
        self._keep(now_ms)

    def _count_refused(self, sampled: dict[TopicId, _Sampled]) -> None:
        """What is not served any more counts until its end."""
        for topic_id in self._of.keys() | sampled.keys():
            before, now = self._of.get(topic_id), sampled.get(topic_id)
            if before is not None:
                same = now is not None and now.serving is before.serving
                self._add_refused(before.verdicts, now.verdicts if now and same else _verdicts(before.serving))
                now = None if same else now
            if now is not None:
                self._add_refused(_NO_VERDICTS, now.verdicts)

    def _add_refused(self, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        if now != before:
            for at, count in enumerate(now):
                self._refused[at] += count - before[at]

    def _keep(self, now_ms: int) -> None:
        counts, buckets = self._counted(), list(self._metrics.publish_buckets)
        measured = [now - before for now, before in zip(buckets, self._latencies, strict=True)]
        sample = pb.RatesSample(
            at_ms=time.time_ns() // 1_000_000,
            interval_ms=max(1, now_ms - self._at_ms),
            acknowledged=self._acknowledged,
            publish_p50_ms=quantile_ms(measured, 0.5),
            publish_p99_ms=quantile_ms(measured, 0.99),
            **{name: now - self._counts[name] for name, now in counts.items()},
            **dict(zip(_VERDICTS, self._refused, strict=True)),
        )
        self._samples.append(sample)
        self._at_ms, self._counts, self._latencies, self._acknowledged = now_ms, counts, buckets, 0
        self._refused = list(_NO_VERDICTS)

    def _counted(self) -> dict[str, int]:
        counts = self._metrics.counts
        return {
            "stored": counts.messages.get("stored", 0),
            "received_bytes": counts.bytes_received,
            "delivered": sum(counts.delivered.values()),
        }

    @property
    def newest(self) -> pb.RatesSample | None:
        """None: there is none yet."""
        return self._samples[-1] if self._samples else None

    def of(self, runner: TopicRunner) -> TopicRates | None:
        """None: the topic is not served, or was not sampled yet."""
        known = self._of.get(runner.topic_id)
        return known.rates if known is not None and known.serving is runner.core.serving else None

    async def answer(self, request: pb.RatesRequest) -> pb.RatesAnswer:
        """Raises InvalidArgument."""
        if not request.seconds:
            raise InvalidArgument("seconds=0: give how far back, in seconds", field="seconds")
        since_ms = time.time_ns() // 1_000_000 - request.seconds * 1000
        servings = [serving for runner in self._topics if (serving := runner.core.serving) is not None]
        return pb.RatesAnswer(
            samples=[each for each in self._samples if each.at_ms > since_ms],
            producers=sum(len(each.sessions.open_sessions) for each in servings),
            consumers=sum(len(list(one.consumers)) for each in servings for one in each.subscriptions),
            topics=len(servings),
        )


def _running_ms() -> int:
    return int(time.monotonic() * 1000)


def _verdicts(serving: Serving) -> tuple[int, ...]:
    counters = serving.sessions.counters
    return tuple(counters[verdict] for verdict in _VERDICTS.values()) if counters else _NO_VERDICTS


def refused(serving: Serving) -> int:
    """Messages that were not stored since this owner took the topic over: duplicates, stale and unverified ones."""
    return sum(_verdicts(serving))


def _counts(serving: Serving) -> list[SubscriptionCounts]:
    return [
        (state.number, state.seek_epoch, state.acks.mark_delete + state.acks.acked_count, each.delivered_counts[0])
        for each in serving.subscriptions
        for state in (each.state,)
    ]


def quantile_ms(buckets: Sequence[int], share: float) -> float | None:
    """The latency that this share of measurements does not exceed, as if they were even within a bucket.

    buckets: measurements by LATENCY_BUCKETS_S, one more at the end for longer ones, which count as the last bound.
    None: there are no measurements.
    """
    below = list(accumulate(buckets))
    if not below[-1]:
        return None
    wanted = share * below[-1]
    at = next(number for number, count in enumerate(below) if count >= wanted)
    if at == len(LATENCY_BUCKETS_S):
        return LATENCY_BUCKETS_S[-1] * 1000
    low = LATENCY_BUCKETS_S[at - 1] if at else 0.0
    part = (wanted - (below[at] - buckets[at])) / buckets[at]
    return round((low + (LATENCY_BUCKETS_S[at] - low) * part) * 1000, 3)
