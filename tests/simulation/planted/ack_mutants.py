"""Planted bugs of the ack log: each takes one rule from its owner, its takeover or its storage nodes."""

from typing import Any

from oncelog.core.acks.ack_log import AckLog
from oncelog.core.acks.ack_state import Ignored, SubscriptionState
from oncelog.core.acks.changes import OffsetCommitted
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, Generation, LedgerId, Position
from oncelog.core.node.node import StorageNode
from oncelog.core.snapshots.snapshot_writer import SnapshotWriter

_fence, _write, _committed = StorageNode._fence, AckLog._write, SubscriptionState.offset_committed


def _fence_only_the_log(node: StorageNode, ledger: Any, step: Any) -> None:
    """The takeover fences no ledger of the ack log."""
    if ledger.origin is None or ledger.origin.purpose is not LedgerPurpose.ACKS:
        _fence(node, ledger, step)


def _settled_when_written(log: AckLog) -> None:
    """Acknowledgements are confirmed when they are sent."""
    _write(log)
    entry = log._in_flight
    if entry is not None and log.user is not None:
        tokens, entry.tokens = entry.tokens, []
        log.user.settled(tokens)


def _bound_of_the_layer_in_flight(cursor: SnapshotWriter) -> Position | None:
    """The ack log is trimmed up to what was appended last."""
    writer = cursor._acks.ledgers.writer
    return None if writer is None else Position(LedgerId(writer.ledger_id), EntryId(0))


def _committed_by_any_generation(state: SubscriptionState, change: OffsetCommitted) -> Ignored | None:
    """A member that was replaced commits after its successor."""
    newest = Generation(max(change.generation, state.generation))
    return _committed(state, change._replace(generation=newest))


#: (name, hazard, first seed, swaps)
ACK_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("ack log not fenced", "deposed-owner-acks", 1_000_000, ((StorageNode, "_fence", _fence_only_the_log),)),
    ("ack log not fenced, as consumers see it", "deposed-owner-acks", 2_000_028, ((StorageNode, "_fence",
    _fence_only_the_log),)), ("ack settled before it is durable", "failed-ack-write", 1_000_000, ((AckLog, "_write",
    _settled_when_written),)), (
        "ack log trimmed by the layer in flight", "failed-ack-write", 1_000_000,
        ((SnapshotWriter, "ack_trim_bound", _bound_of_the_layer_in_flight),),
    ),
    (
        "an older generation commits", "former-member-commits", 1_910_000,
        ((SubscriptionState, "offset_committed", _committed_by_any_generation),),
    ),
)  # fmt: skip
