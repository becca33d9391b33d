"""How fast messages come and go at this owner: samples of what it counts anyway, one each 10 s, for an hour.

A sample of a topic takes about two microseconds and some more for each of its subscriptions. Samples of many topics are
taken in slices, so that publishing does not wait for all of them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

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
#: {field of a sample: verdict of a message}
_VERDICTS = {"stored": "stored", "duplicates": "duplicate", "stale": "stale_sequence", "unverified": "below_mark"}


class OwnerRates:
    """`run` lives as long as the process."""

    def __init__(self, topics: TopicRegistry, metrics: OwnerMetrics) -> None:
        self._topics = topics
        self._metrics = metrics
        self._samples: deque[pb.RatesSample] = deque(maxlen=SAMPLES_KEPT)
        #: {topic: (what it was served by, its rates)}
        self._of: dict[TopicId, tuple[Serving, TopicRates]] = {}
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
        runners, sampled = list(self._topics), dict[TopicId, tuple[Serving, TopicRates]]()
        for first in range(0, len(runners), _SLICE):
            for runner in runners[first : first + _SLICE]:
                serving = runner.core.serving
                if serving is not None:
                    # What is served again counts from 0 again.
                    rates = self.of(runner) or TopicRates()
                    found = rates.sample(serving.log.table.state.next_index, _counts(serving), now_ms)
                    self._acknowledged += found.acknowledged
                    sampled[runner.topic_id] = serving, rates
            await asyncio.sleep(0)
        self._of = sampled
        self._keep(now_ms)

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
        )
        self._samples.append(sample)
        self._at_ms, self._counts, self._latencies, self._acknowledged = now_ms, counts, buckets, 0

    def _counted(self) -> dict[str, int]:
        counts = self._metrics.counts
        return {
            **{field: counts.messages.get(verdict, 0) for field, verdict in _VERDICTS.items()},
            "received_bytes": counts.bytes_received,
            "delivered": sum(counts.delivered.values()),
        }

    def of(self, runner: TopicRunner) -> TopicRates | None:
        """None: the topic is not served, or was not sampled yet."""
        serving, rates = self._of.get(runner.topic_id, (None, None))
        return rates if serving is not None and serving is runner.core.serving else None

    async def answer(self, request: pb.RatesRequest) -> pb.RatesAnswer:
        """Raises InvalidArgument."""
        if not request.seconds:
            raise InvalidArgument("seconds=0: give how far back, in seconds", field="seconds")
        since_ms = time.time_ns() // 1_000_000 - request.seconds * 1000
        return pb.RatesAnswer(samples=[each for each in self._samples if each.at_ms > since_ms])


def _running_ms() -> int:
    return int(time.monotonic() * 1000)


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
