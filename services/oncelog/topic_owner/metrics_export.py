"""The metrics of an owner at /metrics.

They describe the process. A topic's own counters are in its statistics, because labels for topics or producers would
grow without bound.
"""

from oncelog.core.topic.serving import Serving
from oncelog.metadata_store.records.json_records import observe_damaged
from oncelog.rpc.read_watch import ReadWatch
from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog.topic_owner.observe.subscription_metrics import observe_subscriptions
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.storage_offers import OfferCounts


def observe(metrics: OwnerMetrics, topics: TopicRegistry) -> None:
    """Register the instruments for `metrics` and for the state of the topics."""
    counts, telemetry = metrics.counts, metrics.telemetry
    observe_damaged(telemetry)
    telemetry.observe_count("messages", "Messages answered, by verdict", lambda: _by(counts.messages, "verdict"))
    telemetry.observe_count("owner_events", "Events of topics and batches", lambda: _by(counts.events, "event"))
    telemetry.observe_count("received_bytes", "Bytes of batches received", lambda: counts.bytes_received)
    telemetry.observe_count("received_frames", "Frames of batches received", lambda: counts.frames_received)
    telemetry.observe_count("trimmed_ledgers", "Ledgers that left the log of a topic", lambda: counts.trimmed_ledgers)
    telemetry.observe_count("trimmed_messages", "Their messages", lambda: counts.trimmed_messages)
    telemetry.observe_count("trimmed_bytes", "Bytes of their messages, one copy", lambda: counts.trimmed_bytes)
    telemetry.observe_count("orphaned_chunks", "Chunks whose message was not stored", lambda: counts.orphaned_chunks)
    telemetry.observe_count("orphaned_chunk_bytes", "Their bytes, one copy", lambda: counts.orphaned_chunk_bytes)
    telemetry.observe_level("topics", "Topics of this owner, by phase", lambda: _phases(topics))
    telemetry.observe_level(
        "topics_waiting", "Topics of this owner that are not served, by reason", lambda: waiting_topics(topics)
    )
    telemetry.observe_level(
        "topic_ledgers_max",
        "Ledgers of the log with the most ledgers",
        lambda: max((runner.core.ownership.record.ledger_count for runner in topics), default=0),
    )
    telemetry.observe_level(
        "topic_unpaged_ledgers_max",
        "Ledgers outside of pages, of the log with the most of them",
        lambda: max((len(runner.core.ownership.record.ledgers) for runner in topics), default=0),
    )
    telemetry.observe_level("producers", "Producers known to the served topics", lambda: _producers(topics))
    telemetry.observe_level(
        "producer_cap_share_max",
        "Highest share of a cap of producers that a topic or a namespace uses",
        topics.producers.share_max,
    )
    telemetry.observe_level(
        "recent_batches_bytes", "Memory for recent batches, all topics", lambda: _remembered(topics)
    )
    telemetry.observe_level("sessions", "Open producer sessions", lambda: _sessions(topics))
    telemetry.observe_level("entries_in_flight", "Entries that are not confirmed yet", lambda: _in_flight(topics))
    telemetry.observe_level("entry_cache_bytes", "Bytes of entries cached for readers", lambda: _cached(topics))
    observe_subscriptions(telemetry, counts, lambda: _servings(topics))


def observe_reads(telemetry: Telemetry, watch: ReadWatch) -> None:
    """Register the instruments for reads from storage nodes."""
    telemetry.observe_count(
        "second_reads",
        "Reads from a second storage node because the first was slow",
        lambda: watch.hedged_count,
    )
    telemetry.observe_count(
        "damaged_reads", "Entries that a storage node could not give undamaged", lambda: watch.damaged_count
    )


def observe_offers(telemetry: Telemetry, offers: OfferCounts) -> None:
    """Register the instruments for readers that are sent to storage nodes."""
    telemetry.observe_count(
        "storage_offers", "Offers to readers to read from storage nodes, by result", lambda: _by(offers.made, "result")
    )
    telemetry.observe_count(
        "storage_offers_ended", "Offers by why the reader read no further", lambda: _by(offers.ended, "end")
    )


def _by(counts: dict[str, int], label: str) -> list[Reading]:
    return [Reading(value, {label: name}) for name, value in sorted(counts.items())]


def _phases(topics: TopicRegistry) -> list[Reading]:
    phases: dict[str, int] = {}
    for runner in topics:
        phases[runner.core.phase.value] = phases.get(runner.core.phase.value, 0) + 1
    return _by(phases, "phase")


def waiting_topics(topics: TopicRegistry) -> list[Reading]:
    """By the error code behind the wait; topic_loading: a takeover is running and needs no help."""
    reasons: dict[str, int] = {}
    for runner in topics:
        waiting = runner.wait_reason()
        if waiting is not None:
            reasons[waiting.code] = reasons.get(waiting.code, 0) + 1
    return _by(reasons, "reason")


def _servings(topics: TopicRegistry) -> list[Serving]:
    return [runner.core.serving for runner in topics if runner.core.serving is not None]


def _producers(topics: TopicRegistry) -> int:
    return sum(len(serving.log.table.state.producers) for serving in _servings(topics))


def _remembered(topics: TopicRegistry) -> int:
    return sum(serving.log.table.state.producers.bytes for serving in _servings(topics))


def _sessions(topics: TopicRegistry) -> int:
    return sum(len(serving.sessions.open_sessions) for serving in _servings(topics))


def _in_flight(topics: TopicRegistry) -> int:
    return sum(len(serving.log.in_flight) for serving in _servings(topics))


def _cached(topics: TopicRegistry) -> int:
    return sum(runner.cache.bytes for runner in topics)
