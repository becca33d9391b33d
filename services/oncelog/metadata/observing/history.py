"""Keeps figures for plots in memory, for a day: each replica samples what the topic owners have sampled.

A replica knows what has happened since it started, and nothing of before. While an owner does not answer, the figures
of the cluster are unknown, and so are those of the topics that it serves. So are those of a topic without an owner.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from oncelog.core.errors import OncelogError
from oncelog.core.history import History, Key, Kind, Lines, Series, Values
from oncelog.metadata.observing.unowned_topics import UnownedTopics
from oncelog.metadata.owners.owner_calls import STATES_TIMEOUT_MS, OwnerCalls
from oncelog.metadata.owners.owners import Owners
from oncelog.rpc.codecs.owner_codec import SAMPLE_TOPICS
from oncelog.wire import observation_pb2 as pb

SAMPLE_MS = 10_000
#: Of all series of this replica: about 9,000 busy topics with a subscription each.
BYTES_MAX = 96 << 20
#: Topics of one owner, and subscriptions of these.
LIMIT = 10_000
#: Series that are noted at once: requests need not wait for all.
_SLICE = 500
_MEAN, _HIGHEST = Kind.MEAN, Kind.HIGHEST
#: {kind of series: {line: how samples become one place}}, in the order of the lines. Rates are per second.
LINES: dict[str, dict[str, Kind]] = {
    "cluster": {
        "stored": _MEAN, "delivered": _MEAN, "acknowledged": _MEAN, "received_bytes": _MEAN,
        "publish_p50_ms": _HIGHEST, "publish_p99_ms": _HIGHEST, "backlog_messages": _HIGHEST,
    },
    "topic": {"stored": _MEAN, "delivered": _MEAN, "backlog_messages": _HIGHEST},
    "subscription": {"backlog_messages": _HIGHEST, "oldest_s": _HIGHEST},
}  # fmt: skip
CLUSTER: Key = ("cluster",)
#: Kinds of series of which there are many.
_MANY = ("topic", "subscription")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class HistorySampler:
    """`run` lives as long as the process.

    since_ms: when the first sample was taken. left_out: topics and subscriptions that owners did not name, at the last
    sample.
    """

    def __init__(
        self, owners: Owners, calls: OwnerCalls, unowned: UnownedTopics, *, bytes_max: int = BYTES_MAX
    ) -> None:
        self._owners = owners
        self._calls = calls
        self._unowned = unowned
        self._cluster: Series | None = None
        self.history = History({kind: tuple(LINES[kind].values()) for kind in _MANY}, bytes_max=bytes_max)
        self.since_ms: int | None = None
        self.left_out = 0

    async def run(self) -> None:
        """Take samples, forever."""
        while True:
            await asyncio.sleep(SAMPLE_MS / 1000)
            await self.sample(now_ms=wall_ms())

    async def sample(self, *, now_ms: int) -> None:
        """One sample of everything. now_ms: since 1970."""
        request = pb.SampleTopicsRequest(limit=LIMIT)
        await self._unowned.look()
        answers = await self._calls.ask_each(self._owners.live, SAMPLE_TOPICS, request, timeout_ms=STATES_TIMEOUT_MS)
        sound = [answer for _, answer in answers if not isinstance(answer, OncelogError)]
        self.since_ms = self.since_ms or now_ms
        self.left_out = sum(answer.left_out for answer in sound)
        found = sampled(sound, now_ms)
        await _in_slices(list(found), lambda key: self.history.put(key, found[key], now_ms))
        if len(sound) == len(answers):
            self._cluster = self._cluster or Series(tuple(LINES["cluster"].values()), now_ms)
            self._cluster.put(cluster(sound), now_ms)
            idle = [key for key in self.history if key not in found]
            await _in_slices(idle, lambda key: self._idle(key, now_ms))

    def _idle(self, key: Key, now_ms: int) -> None:
        note = self.history.unknown if self._unowned.is_unowned(key[1]) else self.history.idle
        note(key, now_ms)

    def lines(self, key: Key, range_ms: int, now_ms: int) -> tuple[Lines, bool]:
        """Of one series, and whether it is kept. What is not kept was 0 whenever all owners answered, or found no room.
        Of a topic without an owner that is not known."""
        cluster = self._cluster or Series(tuple(LINES["cluster"].values()), now_ms)
        series = cluster if key == CLUSTER else self.history.get(key)
        if series is not None:
            return series.lines(range_ms, now_ms), True
        seen = cluster.lines(range_ms, now_ms)
        level = None if self._unowned.is_unowned(key[1]) else 0.0
        flat: list[float | None] = [None if each is None else level for each in seen.values[-1]]
        return seen._replace(values=(flat,) * len(LINES[key[0]])), False


async def _in_slices(keys: Sequence[Key], note: Callable[[Key], None]) -> None:
    for number, key in enumerate(keys, 1):
        note(key)
        if number % _SLICE == 0:
            await asyncio.sleep(0)


def sampled(answers: Sequence[pb.SampleTopicsAnswer], now_ms: int) -> dict[Key, Values]:
    """The series of topics and subscriptions, with one value for each line. A topic that moves may be named by two
    owners: the last one counts."""
    found: dict[Key, Values] = {}
    for topic in (topic for answer in answers for topic in answer.topics):
        backlog = max((each.backlog_messages for each in topic.subscriptions), default=0)
        found["topic", topic.topic] = (topic.rate_in, topic.rate_out, float(backlog))
        for each in topic.subscriptions:
            known = each.HasField("oldest_unacked_ms")
            oldest_s = max(0, now_ms - each.oldest_unacked_ms) / 1_000 if known else None
            found["subscription", topic.topic, each.name] = (float(each.backlog_messages), oldest_s)
    return found


def cluster(answers: Sequence[pb.SampleTopicsAnswer]) -> Values:
    """Sums over all owners; a time is that of the slowest. An owner that has not sampled yet counts nothing."""
    sampling = [answer for answer in answers if answer.HasField("newest")]
    times = [
        max((getattr(each.newest, name) for each in sampling if each.newest.HasField(name)), default=None)
        for name in ("publish_p50_ms", "publish_p99_ms")
    ]
    rates = [
        sum(_per_second(each, name) for each in sampling)
        for name in ("stored", "delivered", "acknowledged", "received_bytes")
    ]
    return (*rates, *times, float(sum(each.backlog_messages for each in answers)))


def _per_second(answer: pb.SampleTopicsAnswer, name: str) -> float:
    return float(getattr(answer.newest, name) * 1_000 / max(1, answer.newest.interval_ms))
