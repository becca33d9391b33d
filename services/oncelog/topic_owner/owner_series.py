"""The series of an owner at /metrics.

They are of the process: a topic's own figures are in its statistics, for a label of topics or producers grows with
them.
"""

from oncelog.core.topic.serving import Serving
from oncelog.runtime.telemetry import Reading
from oncelog.stores.json_records import observe_damaged
from oncelog.topic_owner.owner_metrics import OwnerMetrics
from oncelog.topic_owner.topic_registry import TopicRegistry


def observe(metrics: OwnerMetrics, topics: TopicRegistry) -> None:
    """Show what `metrics` counts and how the topics stand."""
    counts, telemetry = metrics.counts, metrics.telemetry
    observe_damaged(telemetry)
    telemetry.observe_count("messages", "Messages answered, by verdict", lambda: _by(counts.messages, "verdict"))
    telemetry.observe_count("owner_events", "What happened to topics and batches", lambda: _by(counts.events, "event"))
    telemetry.observe_count("received_bytes", "Bytes of batches received", lambda: [Reading(counts.bytes_received)])
    telemetry.observe_count("received_frames", "Frames of batches received", lambda: [Reading(counts.frames_received)])
    telemetry.observe_level("topics", "Topics here, by phase", lambda: _phases(topics))
    telemetry.observe_level(
        "topics_waiting", "Topics here that are not served, by reason", lambda: waiting_topics(topics)
    )
    telemetry.observe_level("producers", "Producers that served topics know", lambda: [Reading(_producers(topics))])
    telemetry.observe_level(
        "recent_batches_bytes", "Memory of recent batches, of all topics", lambda: [Reading(_remembered(topics))]
    )
    telemetry.observe_level("sessions", "Open producer sessions", lambda: [Reading(_sessions(topics))])
    telemetry.observe_level("entries_in_flight", "Entries not confirmed yet", lambda: [Reading(_in_flight(topics))])
    telemetry.observe_level("entry_cache_bytes", "Entries kept for readers", lambda: [Reading(_cached(topics))])


def _by(counts: dict[str, int], label: str) -> list[Reading]:
    return [Reading(value, {label: name}) for name, value in sorted(counts.items())]


def _phases(topics: TopicRegistry) -> list[Reading]:
    phases: dict[str, int] = {}
    for runner in topics:
        phases[runner.core.phase.value] = phases.get(runner.core.phase.value, 0) + 1
    return _by(phases, "phase")


def waiting_topics(topics: TopicRegistry) -> list[Reading]:
    """By the code of the error that a topic waits for; topic_loading: a takeover that goes on by itself."""
    reasons: dict[str, int] = {}
    for runner in topics:
        waiting = runner.progress.troubles.why(runner.parts.links.reachability.unreachable)
        if waiting is not None:
            reasons[waiting.code] = reasons.get(waiting.code, 0) + 1
    return _by(reasons, "reason")


def _servings(topics: TopicRegistry) -> list[Serving]:
    return [runner.core.serving for runner in topics if runner.core.serving is not None]


def _producers(topics: TopicRegistry) -> int:
    return sum(len(serving.log.table.state.producers) for serving in _servings(topics))


def _remembered(topics: TopicRegistry) -> int:
    return sum(serving.log.table.state.budget.bytes for serving in _servings(topics))


def _sessions(topics: TopicRegistry) -> int:
    return sum(len(serving.sessions.open_sessions) for serving in _servings(topics))


def _in_flight(topics: TopicRegistry) -> int:
    return sum(len(serving.log.in_flight) for serving in _servings(topics))


def _cached(topics: TopicRegistry) -> int:
    return sum(runner.cache.bytes for runner in topics)
