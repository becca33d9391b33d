"""What a restore or a drill has done, for the operator who follows it."""

import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from oncelog.core.errors import CorruptEntry
from oncelog.core.rebuild.restore_events import RestoreStep
from oncelog.core.rebuild.result import Review

#: Of each list, to other metadata services, and of the whole record: ZooKeeper takes no larger one than 1 MiB.
SHOWN_MAX = 500
SHOWN_BYTES_MAX = 512 * 1024
_LISTS = ("nodes", "copies", "reviews", "warnings", "differences")


class RestoreState(Enum):
    """INTERRUPTED: claimed by a performer that is no more; the next request resumes it."""

    IDLE = "idle"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """state: "used", "silent", "limbo", "absent" or "retired". reason: why it is not used."""

    node: str
    address: str
    state: str
    reason: str = ""


@dataclass(slots=True)
class RestoreProgress:
    """message: why it does not go on, and what to do. differences: of a drill, what a restore would change. joined: how
    many requests for the same came while it went on; the first one has begun it."""

    state: RestoreState = RestoreState.IDLE
    step: RestoreStep = RestoreStep.PLAN
    dry_run: bool = False
    by: str = ""
    era: int = 0
    restore_id: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    message: str = ""
    nodes: list[ReportedNode] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    topics: int = 0
    ledgers: int = 0
    deleted_topics: int = 0
    without_holder: int = 0
    records: int = 0
    records_written: int = 0
    gives_up: bool = False
    rights_closed: bool = False
    reviews: list[Review] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    joined: int = 0

    def begin(self, *, by: str, dry_run: bool) -> None:
        self.state, self.by, self.dry_run, self.started_ms = RestoreState.RUNNING, by, dry_run, now_ms()

    def end(self, state: RestoreState, message: str = "") -> None:
        self.state, self.message, self.ended_ms = state, message, now_ms()

    def brief(self) -> dict[str, Any]:
        """What the audit log gets."""
        fields = asdict(self)
        for name in ("nodes", "reviews", "differences", "warnings"):
            fields[name] = len(fields[name])
        return fields | {"state": self.state.value, "step": self.step.value}


_FORM = TypeAdapter(RestoreProgress)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown_time(time_ms: int) -> str:
    """2026-11-27 06:00:00 UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def encode_progress(progress: RestoreProgress) -> bytes:
    """For other metadata services. Long lists are cut."""
    count = SHOWN_MAX
    while True:
        data = _FORM.dump_json(replace(progress, **{name: getattr(progress, name)[:count] for name in _LISTS}))
        if len(data) <= SHOWN_BYTES_MAX or not count:
            return data
        count //= 2


def decode_progress(data: bytes) -> RestoreProgress:
    """Raises CorruptEntry."""
    try:
        return _FORM.validate_json(data)
    except ValidationError as error:
        raise CorruptEntry(f"the progress of a restore cannot be read: {error}") from error
