"""Health checks and metrics of a mirror over HTTP."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

from oncelog.runtime.health import Health
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog_effects.mirror.mirror import Mirror, MirroredTopic


@asynccontextmanager
async def observed(mirror: Mirror, host: str, port: int) -> AsyncIterator[int]:
    """Serve inside the block; the port. Raises InvalidArgument if it cannot be used."""
    telemetry = Telemetry.from_environment("mirror", "")
    _measure(mirror, telemetry)
    health = Health(telemetry.metrics_text, HttpHosts.of_environment())
    health.ready_when("topics", lambda: _unready(mirror))
    health.serve_value("/mirror", lambda: {name: _shown(topic) for name, topic in sorted(mirror.topics.items())})
    try:
        yield await health.start(host=host, port=port)
    finally:
        await health.stop()
        telemetry.shut_down()


def _measure(mirror: Mirror, telemetry: Telemetry) -> None:
    read = partial(_reader, mirror)
    telemetry.observe_level(
        "mirror_lag_messages", "messages of the source still to copy", read(lambda one: one.lag_messages)
    )
    telemetry.observe_level(
        "mirror_lag_seconds", "age of the first message that is not copied", read(lambda one: one.lag_s(time.time()))
    )
    telemetry.observe_level("mirror_failed", "1: the topic cannot be copied", read(lambda one: int(bool(one.trouble))))
    telemetry.observe_count("mirror_copied", "messages copied", read(lambda one: one.effects.counts.copied))
    telemetry.observe_count("mirror_passed", "messages of other clusters", read(lambda one: one.effects.counts.passed))
    telemetry.observe_count("mirror_gaps", "gaps in the source's messages", read(lambda one: one.effects.counts.gaps))
    telemetry.observe_count("mirror_fenced", "fences by another mirror", read(lambda one: one.effects.counts.fenced))
    telemetry.observe_count(
        "mirror_rewound",
        "messages that the target had lost, delivered again",
        read(lambda one: sum(status.rewound for status in one.statuses.values())),
    )


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
