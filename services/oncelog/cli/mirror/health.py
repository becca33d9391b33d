"""Health checks and metrics of a mirror over HTTP."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from oncelog.effects.mirror.copying import Mirror, MirroredTopic
from oncelog.runtime.health import Health
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.telemetry import Reading, Telemetry

_LEVELS: tuple[tuple[str, str, Callable[[MirroredTopic], float]], ...] = (
    ("mirror_lag_messages", "Messages of the source that this mirror has still to copy", lambda one: one.lag_messages),
    (
        "mirror_lag_seconds",
        "How long ago the first message that is not copied was published; 0: none waits",
        lambda one: one.lag_s(time.time()),
    ),
    ("mirror_failed", "1 while the topic cannot be copied", lambda one: int(bool(one.trouble))),
)
_COUNTS: tuple[tuple[str, str, Callable[[MirroredTopic], int]], ...] = (
    ("mirror_copied", "Messages copied", lambda one: one.effects.counts.copied),
    ("mirror_passed", "Messages of other clusters, which are not copied", lambda one: one.effects.counts.passed),
    ("mirror_gaps", "Gaps in the messages of the source", lambda one: one.effects.counts.gaps),
    ("mirror_fenced", "How often another mirror has fenced this one", lambda one: one.effects.counts.fenced),
    ("mirror_rewound", "Messages that the target had lost, and that were delivered again",
     lambda one: sum(status.rewound for status in one.statuses.values())),
)  # fmt: skip


@asynccontextmanager
async def observed(mirror: Mirror, host: str, port: int) -> AsyncIterator[int]:
    """Serve inside the block; the port. Raises InvalidArgument if it cannot be used."""
    telemetry = Telemetry.from_environment("mirror", "")
    for name, description, read in _LEVELS:
        telemetry.observe_level(name, description, _reader(mirror, read))
    for name, description, read in _COUNTS:
        telemetry.observe_count(name, description, _reader(mirror, read))
    health = Health(telemetry.metrics_text, HttpHosts.of_environment())
    health.ready_when("topics", lambda: _unready(mirror))
    health.serve_value("/mirror", lambda: {name: _shown(topic) for name, topic in sorted(mirror.topics.items())})
    try:
        yield await health.start(host=host, port=port)
    finally:
        await health.stop()
        telemetry.shut_down()


def _reader(mirror: Mirror, read: Callable[[MirroredTopic], float]) -> Callable[[], Iterator[Reading]]:
    return lambda: (Reading(read(topic), {"topic": name}) for name, topic in sorted(mirror.topics.items()))


def _unready(mirror: Mirror) -> str | None:
    """A mirror that waits for another one is ready; one that waits for a cluster is not."""
    waits = [f"{where}: {why}" for where, why in sorted(mirror.unreachable.items())]
    now = time.time()
    waits += [f"{name}: {why}" for name, topic in sorted(mirror.topics.items()) if (why := topic.waits_for(now))]
    return "; ".join(waits) or (None if mirror.topics else "no topic was found yet")


def _shown(topic: MirroredTopic) -> dict[str, object]:
    counts = topic.effects.counts
    return {
        "lag_messages": topic.lag_messages,
        "copied": counts.copied,
        "passed": counts.passed,
        "gaps": counts.gaps,
        "fenced": counts.fenced,
        "trouble": topic.trouble,
        "waits_for": topic.waits_for(time.time()),
        "partitions": {
            name: {"active": status.active, "position": status.position, "trouble": status.trouble}
            for name, status in topic.statuses.items()
        },
    }
