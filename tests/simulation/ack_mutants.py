"""Planted bugs of the ack chain: each takes one rule from its owner, its takeover or its storage nodes."""

from typing import Any

from oncelog.core.acks.ack_log import AckLog
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.node.node import StorageNode
from oncelog.core.snapshots.snapshot_writer import DedupCursor

_fence, _write = StorageNode._fence, AckLog._write


def _fence_only_the_log(node: StorageNode, ledger: Any, step: Any) -> None:
    """The takeover fences no ledger of the ack chain."""
    if ledger.origin is None or ledger.origin.purpose is not LedgerPurpose.ACKS:
        _fence(node, ledger, step)


def _settled_when_written(log: AckLog) -> None:
    """Acknowledgements are confirmed when they are sent."""
    _write(log)
    entry = log._in_flight
    if entry is not None and log.user is not None:
        tokens, entry.tokens = entry.tokens, []
        log.user.settled(tokens)


def _bound_of_the_layer_in_flight(cursor: DedupCursor) -> Position | None:
    """The ack chain is trimmed up to what was appended last."""
    writer = cursor._acks.ledgers.writer
    return None if writer is None else Position(LedgerId(writer.ledger_id), EntryId(0))


#: (name, hazard, first seed, swaps)
ACK_MUTANTS: tuple[tuple[str, int, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("ack chain not fenced", 53, 1_000_000, ((StorageNode, "_fence", _fence_only_the_log),)),
    ("ack chain not fenced, as consumers see it", 53, 2_000_063, ((StorageNode, "_fence", _fence_only_the_log),)),
    ("ack settled before it is durable", 25, 1_000_000, ((AckLog, "_write", _settled_when_written),)),
    (
        "ack chain trimmed by the layer in flight", 25, 1_000_000,
        ((DedupCursor, "ack_trim_bound", _bound_of_the_layer_in_flight),),
    ),
)  # fmt: skip
