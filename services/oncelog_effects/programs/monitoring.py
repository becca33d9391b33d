"""What the health port of a program with effects tells."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oncelog.core.names import parse_topic
from oncelog.runtime import monitoring
from oncelog_effects.processes import Process
from oncelog_effects.status import SourceStatus

if TYPE_CHECKING:
    from oncelog.runtime.health import Health
    from oncelog.runtime.telemetry import Reading, Telemetry


def monitored(
    processes: Sequence[Process[Any]], host: str, port: int | None, stalled_after_s: float | None
) -> AbstractAsyncContextManager[int | None]:
    """See `runtime.monitoring`. stalled_after_s: /livez fails when a function runs for longer; None: it does not."""

    def describe(health: "Health", telemetry: "Telemetry") -> None:
        _add_metrics(processes, telemetry)
        health.serve_value("/status", lambda: [_shown(each) for each in _statuses(processes)])
        # A standby is ready, too. A program without its database is not, and a restart would not help it.
        health.ready_when("effects", lambda: _trouble(processes))
        health.live_when("function", lambda: _stalled(processes, stalled_after_s))

    return monitoring.monitored("effects", host, port, describe)


def _statuses(processes: Sequence[Process[Any]]) -> Iterator[SourceStatus]:
    return (status for process in processes for status in list(process.statuses.values()))


def _shown(status: SourceStatus) -> dict[str, object]:
    now = time.time()
    more = {"lag_messages": status.lag_messages, "lag_s": status.lag_s(now), "running_s": status.running_s(now)}
    return {**asdict(status), **more}


def _trouble(processes: Sequence[Process[Any]]) -> str | None:
    troubles = [f"{each.effect} of {each.topic}: {each.trouble}" for each in _statuses(processes) if each.trouble]
    return "; ".join(troubles) or None


def _stalled(processes: Sequence[Process[Any]], after_s: float | None) -> str | None:
    now = time.time()
    for each in _statuses(processes):
        if after_s is not None and each.running_s(now) > after_s:
            seconds = f"{each.running_s(now):.0f} s"
            return f"the function or the store of {each.effect} has been running for {seconds} on {each.topic}"
    return None


def _add_metrics(processes: Sequence[Process[Any]], telemetry: "Telemetry") -> None:
    from oncelog.runtime.telemetry import Reading

    def read(value: Callable[[SourceStatus], float]) -> "Callable[[], list[Reading]]":
        return lambda: [Reading(value(each), _labels(each)) for each in _statuses(processes)]

    def refusals() -> "list[Reading]":
        return [
            Reading(count, {**_labels(each), "reason": reason})
            for each in _statuses(processes)
            for reason, count in each.refusals.items()
        ]

    telemetry.observe_count("effects_applied", "messages that took effect", read(lambda each: each.applied))
    telemetry.observe_count("effects_filtered", "messages that had taken effect", read(lambda each: each.filtered))
    telemetry.observe_count("effects_rewound", "messages the store had lost", read(lambda each: each.rewound))
    telemetry.observe_count("effects_dead_letters", "messages given up", read(lambda each: each.dead_letters))
    telemetry.observe_count("effects_skipped", "messages that cannot be read", read(lambda each: each.skipped))
    telemetry.observe_count("effects_attempts", "runs of the function", read(lambda each: each.attempts))
    telemetry.observe_count("effects_claims", "claims of the store", read(lambda each: each.claims))
    telemetry.observe_count("effects_refused", "refusals of log and store, by reason", refusals)
    telemetry.observe_count("effects_transactions", "transactions committed", read(lambda each: each.transactions))
    telemetry.observe_count("effects_transaction_seconds", "their seconds", read(lambda each: each.transaction_s))
    telemetry.observe_level("effects_active", "1: this process has the source", read(lambda each: int(each.active)))
    telemetry.observe_level("effects_lag_messages", "messages behind the position", read(lambda e: e.lag_messages))
    telemetry.observe_level(
        "effects_lag_seconds", "age of the first message without an effect", read(lambda each: each.lag_s(time.time()))
    )
    telemetry.observe_level(
        "effects_running_seconds",
        "of the transaction under way",
        read(lambda each: each.running_s(time.time())),
    )
    telemetry.observe_level(
        "effects_stuck", "1: a message fails again and again", read(lambda each: int(each.stuck is not None))
    )
    telemetry.observe_level(
        "effects_last_applied_timestamp_seconds", "of the newest commit", read(lambda each: each.applied_at)
    )


def _labels(status: SourceStatus) -> dict[str, str | int]:
    topic = parse_topic(status.topic)
    return {
        "effect": status.effect,
        "topic": f"{topic.namespace_name}/{topic.local}",
        "partition": -1 if topic.partition is None else topic.partition,
    }
