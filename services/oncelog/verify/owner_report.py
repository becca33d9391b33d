"""What the owner of a topic reports to a check of its log: its producers as of a position, and its snapshots. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import Generation, Position, ProducerId, SequenceId
from oncelog.verify.producer_marks import ReportedProducer

Json = Mapping[str, Any]


class LiveMap(NamedTuple):
    """The producers of the owner as of `position`. lists_all: `producers` is complete."""

    position: Position
    next_index: int
    producers: Mapping[ProducerId, ReportedProducer]
    lists_all: bool


class SnapshotDue(NamedTuple):
    """When the topic owner takes a snapshot at the latest. entries_max 0: not reported."""

    entries_max: int = 0
    interval_ms: int = 0


NOT_REPORTED = SnapshotDue()


@dataclass(frozen=True, slots=True)
class OwnerReport:
    """The topic owner's view of the topic. stats: its statistics. snapshot_number 0: no snapshot was taken.

    next_after: `live` has one page of the producers, and the next one begins behind this id. None: it has the last one,
    or as many as the owner lists.
    """

    owner_epoch: int
    live: LiveMap
    stats: Json
    snapshot_number: int
    snapshot_due: SnapshotDue = NOT_REPORTED
    next_after: int | None = None


def owner_report(owner_epoch: int, stats: Json, internal: Json) -> OwnerReport:
    """Parse the statistics of a topic owner. A page of producers is complete for its ids."""
    producers = {
        ProducerId(one["producer_id"]): ReportedProducer(
            one["name"],
            SequenceMode[one["mode"].upper()],
            Generation(one["generation"]),
            SequenceId(one["persisted"]),
        )
        for one in internal["producers"]
    }
    live = LiveMap(
        Position.parse(stats["last_position"]),
        stats["message_count"],
        producers,
        len(producers) == stats["producer_count"] or "producers_next_after" in internal,
    )
    snapshot = internal["snapshot"]
    due = SnapshotDue(snapshot.get("entries_max", 0), snapshot.get("interval_ms", 0))
    return OwnerReport(owner_epoch, live, stats, snapshot["number"], due, internal.get("producers_next_after"))
