"""The deduplication of a topic as JSON, for operators: producers, the newest snapshot, what a takeover would replay."""

import time
from dataclasses import asdict

from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.topic_states import Json
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: What the state of an idle producer takes, without its recent batches (`core.publishing.producers`).
PRODUCER_BYTES = 300
#: Verdicts on messages that were stored before, or are too old to tell.
_REFUSED = ("duplicate", "below_mark")


def deduplication_of(runner: TopicRunner, serving: Serving) -> Json:
    """Counters start at the takeover by this process."""
    state, cursor, counters = serving.log.table.state, serving.cursor, serving.sessions.counters
    producers = state.producers
    return {
        "topic": runner.name,
        "owner_epoch": runner.owner_epoch,
        "enabled": serving.log.table.dedup_enabled,
        "producer_count": len(producers),
        "connected_producer_count": len(serving.sessions.open_sessions),
        "memory_bytes": PRODUCER_BYTES * len(producers) + producers.bytes,
        "recent_batches_bytes": producers.bytes,
        "recent_batches_bytes_max": producers.bytes_max,
        "duplicates_refused": sum(counters[verdict] for verdict in _REFUSED),
        "position": str(state.position),
        "snapshot": snapshot_of(serving),
        "replay_entries": cursor.to_replay.entries,
        "replay_bytes": cursor.to_replay.bytes,
        "snapshot_writer": {
            "state": cursor.state.value,
            "failures": cursor.failures,
            "failed_ms": cursor.failed_ms or None,
        },
    }


def verification_of(runner: TopicRunner) -> Json | None:
    """The newest verification of this owner; None: none was begun here."""
    job = runner.verification
    if job is None:
        return None
    proof = job.verification
    loaded = proof.snapshot.loaded if proof is not None else None
    return {
        "id": job.id,
        "topic": runner.name,
        "owner_epoch": runner.owner_epoch,
        "state": job.state.value,
        "phase": None if proof is None else proof.state.value,
        "attempts": job.attempts,
        "began_ms": job.began_ms,
        "ended_ms": job.ended_ms or None,
        "bytes_per_second": job.bytes_per_s,
        "snapshot": None if loaded is None else {"number": loaded.number, "position": str(loaded.newest.position)},
        "newest_snapshot_number": 0 if proof is None else proof.newest_number,
        "position": None if proof is None or proof.position is None else str(proof.position),
        "entries_read": 0 if proof is None else proof.entries_read,
        "bytes_read": 0 if proof is None else proof.bytes_read,
        "producers_compared": 0 if proof is None else proof.compared,
        "producer_count": 0 if proof is None else proof.producer_count,
        "differences_count": 0 if proof is None else proof.differences_count,
        "differences": [] if proof is None else [each._asdict() for each in proof.differences],
        "subscriptions": None
        if proof is None
        else {
            "compared": proof.subscriptions_compared,
            "count": proof.subscription_count,
            "position": None if proof.ack_position is None else str(proof.ack_position),
            "differences_count": proof.ack_differences_count,
            "differences": list(map(asdict, proof.ack_differences)),
        },
        "waiting": None if proof is None else proof.waiting,
        "error": None if job.error is None else job.error.message,
    }


def snapshot_of(serving: Serving) -> Json | None:
    """The newest durable snapshot, of this or an earlier owner; None: there is none."""
    newest = serving.cursor.newest
    if newest is None:
        return None
    return {
        "number": serving.cursor.number,
        "position": str(newest.position),
        "taken_ms": newest.taken_ms,
        "age_ms": max(0, time.time_ns() // 1_000_000 - newest.taken_ms),
    }
