"""Statistics and internal state of topics as JSON, for operators."""

from collections.abc import Mapping

from oncelog.core.chain.managed_ledger import ManagedLedgerState
from oncelog.core.ids import Position
from oncelog.core.topic.serving import Serving
from oncelog.core.topic.topic_rates import TopicRates
from oncelog.topic_owner.observe.producer_states import producers_behind, some_producers
from oncelog.topic_owner.observe.subscription_states import (
    backlog_of,
    largest_backlog,
    name_of,
    oldest_unacked_ms,
    subscriptions_of,
)
from oncelog.topic_owner.shell.topic_runner import TopicRunner

Json = Mapping[str, object]
#: Producers listed, unless a request asks for more; `producer_count` counts all.
PRODUCERS_SHOWN_MAX = 1000


def figures(serving: Serving, rates: TopicRates | None) -> Json:
    """How much comes, goes, waits and is stored: what the lists of topics and the statistics of one both have. rates:
    None: the topic was not sampled yet."""
    held, largest = serving.space.held, largest_backlog(serving)
    return {
        "message_count": serving.log.table.state.next_index,
        "first_index": serving.subscriptions.log.first_index,
        "bytes": serving.space.ledgers.message_bytes,
        "rate_in": None if rates is None else rates.rate_in,
        "rate_out": None if rates is None else rates.rate_out,
        "backlog_messages": 0 if largest is None else backlog_of(largest, serving),
        "backlog_subscription": None if largest is None else largest.state.name,
        "oldest_unacked_ms": oldest_unacked_ms(serving),
        "publishing": serving.space.publishing,
        "held_since_ms": None if held is None else held.since_ms,
        "held_by": None if held is None else name_of(serving, held.number),
    }


def stats(runner: TopicRunner, rates: TopicRates | None = None, *, subscriptions: bool = True) -> Json:
    """The statistics of one topic. Counters start at the takeover by this process. rates: see `figures`.
    subscriptions: with a list of them."""
    serving = runner.core.serving
    waiting = runner.wait_reason()
    shown: dict[str, object] = {
        "topic": runner.name,
        "topic_id": runner.topic_id,
        "phase": runner.core.phase.value,
        "owner_epoch": runner.owner_epoch,
        "waiting": None if waiting is None else waiting.as_json(),
        "unavailable": runner.progress.unavailable.as_json(),
        "takeovers": [
            {
                "owner_epoch": record.owner_epoch,
                "began_ms": record.began_ms,
                "ms": round(record.total_ms, 2),
                "replayed_entries": record.replayed_entries,
                "silent_ms": record.silent_ms,
                "phases_ms": {phase: round(ms, 2) for phase, ms in record.phases_ms.items()},
            }
            for record in runner.trace.finished
        ],
    }
    if serving is not None:
        state = serving.log.table.state
        shown |= {
            "deduplication_enabled": serving.log.table.dedup_enabled,
            **figures(serving, rates),
            "last_position": str(state.position),
            "messages_by_verdict": dict(sorted(serving.sessions.counters.items())),
            "producer_count": len(state.producers),
            "recent_batches": {
                "bytes": state.producers.bytes,
                "bytes_max": state.producers.bytes_max,
                "producers": state.producers.remembering,
                "evicted": state.producers.evicted,
            },
            "connected_producer_count": len(serving.sessions.open_sessions),
            "entries_in_flight": len(serving.log.in_flight),
            "subscription_count": sum(1 for _ in serving.subscriptions),
        }
        if subscriptions:
            shown["subscriptions"] = subscriptions_of(serving)
    return shown


def internal_stats(
    runner: TopicRunner, producers_max: int = PRODUCERS_SHOWN_MAX, producers_after: int | None = None
) -> Json:
    """Producers, ledgers and the snapshot of one topic. producers_after: a page of the producers behind this id, and
    `producers_next_after`: where the next page begins, or null."""
    serving = runner.core.serving
    record = runner.core.ownership.record
    shown: dict[str, object] = {
        "owner": record.owner,
        "record_version": runner.core.ownership.version,
        "ledger_count": record.ledger_count,
        "ledgers": [{"ledger_id": ledger_id, "base_index": base_index} for ledger_id, base_index in record.ledgers],
        "ledger_pages": [
            {"first": page.first, "last": page.last, "base_index": page.base_index, "ledgers": page.ledgers}
            for page in record.pages
        ],
        "cache": {"bytes": runner.cache.bytes, "hits": runner.cache.hits, "misses": runner.cache.misses},
    }
    if serving is not None:
        shown |= {
            "open_ledger": _open_ledger(serving),
            "snapshot": _snapshot(serving),
        }
        if producers_after is None:
            shown["producers"] = some_producers(serving.openings, producers_max)
        else:
            shown["producers"], shown["producers_next_after"] = producers_behind(
                serving.openings, producers_after, producers_max
            )
    return shown


def _open_ledger(serving: Serving) -> Json:
    ledgers = serving.log.ledgers
    writer = ledgers.writer
    # While the next ledger is being opened, its state is more precise.
    state = ledgers.next.state.value if ledgers.state is ManagedLedgerState.OPENING else ledgers.state.value
    if writer is None:
        return {"state": state}
    return {
        "state": state,
        "ledger_id": writer.ledger_id,
        "last_add_confirmed": writer.last_add_confirmed,
        "entries": writer.next_entry,
        "bytes": writer.length,
        "members": list(writer.metadata.members),
        "members_present": list(writer.present),
    }


def _snapshot(serving: Serving) -> Json:
    cursor = serving.cursor
    newest = cursor.newest
    return {
        "number": cursor.number,
        "position": _shown(None if newest is None else newest.position),
        "taken_ms": None if newest is None else newest.taken_ms,
        "entries_since": cursor.entries_since,
        "state": cursor.state.value,
        "entries_max": cursor.settings.entries_max,
        "interval_ms": cursor.settings.interval_ms,
        "ledgers": [
            {
                "ledger_id": link.ledger_id,
                "base": _shown(base.log if (base := cursor.bases.get(link.ledger_id)) else None),
            }
            for link in cursor.record.ledgers
        ],
        "trim_bound": _shown(cursor.trim_bound()),
    }


def _shown(position: Position | None) -> str | None:
    return None if position is None else str(position)
