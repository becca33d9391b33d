"""Where one message is, as JSON and in words, for operators and programmers."""

from collections.abc import Mapping

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import SequenceId
from oncelog.core.publishing.finding import Found, FoundState
from oncelog.core.publishing.refusals import RefusalsOfId

Json = Mapping[str, object]


def found_json(
    found: Found, sequence_id: SequenceId, refusals: RefusalsOfId | None, *, deduplication: bool, problem: str | None
) -> Json:
    """null: there is none, or it is not known. problem: why the entry that is known cannot be read now."""
    return {
        "state": found.state.value,
        "explanation": _explained(found, sequence_id, problem),
        "message_id": _message_id(found),
        "index": found.index,
        "append_time_ms": found.append_time_ms,
        "deduplication": deduplication,
        "producer_id": found.producer_id,
        "mode": None if found.mode is None else found.mode.name.lower(),
        "accepted": found.accepted,
        "persisted": found.persisted,
        "recent_floor": found.floor,
        "refusals": None if refusals is None else _refusals_json(refusals),
    }


def _refusals_json(refusals: RefusalsOfId) -> Json:
    return {
        "counts": refusals.counts,
        "possible_counts": refusals.possible_counts,
        "first_ms": refusals.first_ms,
        "last_ms": refusals.last_ms,
        "last_from": refusals.last_peer or None,
        "since_ms": refusals.since_ms,
        "complete": refusals.complete,
    }


def _message_id(found: Found) -> str | None:
    return None if found.position is None else f"{found.position}:{found.batch_index}"


def _explained(found: Found, sequence_id: SequenceId, problem: str | None) -> str:
    place = _message_id(found)
    match found.state:
        case FoundState.STORED if problem is not None:
            return f"stored as {place}, but it cannot be read now: {problem}"
        case FoundState.STORED:
            return f"stored as {place}, index {found.index}"
        case FoundState.IN_FLIGHT:
            return f"sent to the storage nodes as {place}, and not durable yet: ask again"
        case FoundState.UNKNOWN:
            return (
                f"not known: only one entry knows whether it holds sequence id {sequence_id}, and it cannot be read "
                f"now: {problem}"
            )
        case FoundState.TRIMMED:
            return f"stored as {place}, and deleted since then"
        case FoundState.NOT_STORED if found.accepted < 0:
            return "not stored: the producer has stored nothing yet"
        case FoundState.NOT_STORED:
            return f"not stored: it is above {found.accepted}, the highest sequence id of the producer"
        case FoundState.NEVER_STORED:
            return (
                f"never stored: the producer has stored higher sequence ids, up to {found.accepted}, and not this one. "
                "With deduplication, a message with it is refused with stale_sequence"
            )
        case FoundState.NOT_FOUND if found.mode is SequenceMode.CONTIGUOUS:
            return (
                "stored, because the producer numbers its messages without gaps, but not in what is kept of the log: "
                "deleted since then"
            )
        case FoundState.NOT_FOUND:
            return (
                f"not in what is kept of the log: the producer has stored higher sequence ids, up to "
                f"{found.persisted}. It was never stored, or deleted since then, or stored without deduplication"
            )
        case FoundState.OLDER_THAN_REMEMBERED if found.mode is SequenceMode.CONTIGUOUS:
            return (
                "stored, because the producer numbers its messages without gaps. The log was searched for its place: "
                f"{problem}"
            )
        case FoundState.OLDER_THAN_REMEMBERED if found.batch is not None:
            batch = found.batch
            return (
                f"not known any more: the producer has stored {batch.count} sequence ids from {batch.first} to "
                f"{batch.last} as one batch, and retention has deleted its entry. Whether {sequence_id} was one of "
                "them cannot be seen any more. With deduplication, a message with it is not stored"
            )
        case FoundState.OLDER_THAN_REMEMBERED:
            return (
                f"not known: the producer has stored sequence ids up to {found.persisted}. The log was searched for "
                f"this one: {problem}"
            )
        case FoundState.UNKNOWN_PRODUCER:
            return (
                "no producer has this name: it was never opened here, or it has expired, and its sequence ids were "
                "forgotten with it"
            )
