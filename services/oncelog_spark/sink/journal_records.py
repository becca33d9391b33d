"""The records in the sink's journals: one record for a batch, stored before any row of the batch is in the target.

A journal is a hidden topic of one producer of the target. Its record n is the message with sequence id n of its one,
contiguous producer. A record names its run (query or job), its batch, and the runs that wrote before it. Pure: bytes
in, values out.

- BatchRecord (mode batch): the attempts that count, in the order in which they are copied, and the sequence ids of
  their rows: base, base + 1 … Their order and number never change once the record is stored.
- ClaimRecord (mode position): the next ids of the batch that its task is about to publish. All claims of a batch
  together are what the target may have of it. A task with other ids has another share of the batch.
"""

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from oncelog.core.errors import CorruptEntry
from oncelog_spark.sink.row_digest import sum_of

FORMAT = 2
_PAGE = "Page"


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """A batch of a run. run_id: of the query, or of the job; the only batch of a job has number 0."""

    run_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of {self.run_id}"


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """Rows that one task staged. name: its producer on the staging topic; no other attempt ever uses it.

    start: the message id of its first row, in hex; its rows are the first `count` messages under its name from there
    on. digest: of its rows (`row_digest`). routes: the number of partitions of each topic that they go to, by which
    they are routed. counts: {destination: how many}. by_columns: each row is staged with its destination.
    """

    partition: int
    attempt: int
    topic: str
    name: str
    start: str
    count: int
    digest: int
    routes: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    by_columns: bool = False


@dataclass(frozen=True, slots=True)
class AttemptPages:
    """Attempts that are too many for one message. ids: message ids, in hex, of the pages that list them, in order.
    topic: of the pages. digest, counts: of all rows."""

    ids: tuple[str, ...]
    topic: str
    digest: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """bases: {destination: the sequence id of the first row that goes there}. former: runs that wrote under this name
    before; none of them may continue. offsets: a hash of the batch's source offsets (`batch_replay`), empty: not known.
    paged: if set, attempts is empty, and pages list them."""

    batch: RangeBatch
    bases: Mapping[str, int]
    attempts: tuple[StagedAttempt, ...]
    former: tuple[str, ...] = ()
    offsets: str = ""
    paged: AttemptPages | None = None

    @property
    def digest(self) -> int:
        """Of all rows, independent of their order."""
        if self.paged is not None:
            return self.paged.digest
        return sum_of(attempt.digest for attempt in self.attempts)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        """{destination: number of rows that go there}."""
        return counts_of(self.attempts) if self.paged is None else dict(self.paged.counts)

    @property
    def ends(self) -> dict[str, int]:
        """{destination: the sequence id behind its last row there}."""
        return {topic: self.bases[topic] + count for topic, count in self.counts.items()}


def counts_of(attempts: Iterable[StagedAttempt]) -> dict[str, int]:
    """{destination: number of rows that go there}, of all attempts."""
    found: Counter[str] = Counter()
    for attempt in attempts:
        found.update(attempt.counts)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class ClaimedIds:
    """Consecutive ids of a task: `count` of them, from first to last, possibly with gaps."""

    first: int
    last: int
    count: int
    checksum: int

    @classmethod
    def of(cls, ids: Sequence[int]) -> Self:
        """Of a non-empty, ascending sequence."""
        return cls(ids[0], ids[-1], len(ids), zlib.crc32(struct.pack(f"<{len(ids)}q", *ids)))

    def __str__(self) -> str:
        return f"{self.count} ids from {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """start: the message id, in hex, of the batch's first claim; empty in the first claim. former: as in BatchRecord.
    routes: the number of partitions of each topic that its rows go to. positions: for each destination a message id, in
    hex: rows of this claim are published behind it; empty: the beginning."""

    batch: RangeBatch
    ids: ClaimedIds
    start: str = ""
    former: tuple[str, ...] = ()
    routes: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)


def encode_record(record: BatchRecord | ClaimRecord) -> bytes:
    """JSON with a format field."""
    fields = asdict(record) | {"format": FORMAT, "kind": type(record).__name__}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_batch_record(data: bytes) -> BatchRecord:
    """Raises CorruptEntry when the bytes are not such a record."""
    fields = _fields(data, BatchRecord.__name__)
    try:
        return BatchRecord(
            _batch(fields),
            dict(fields["bases"]),  # type: ignore[call-overload]
            _attempts(fields),
            _former(fields),
            str(fields["offsets"]),
            _paged(fields["paged"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(f"{type(error).__name__}: {error}") from error


def encode_page(attempts: Sequence[StagedAttempt]) -> bytes:
    """A list of attempts, as JSON with a format field."""
    fields = {"attempts": [asdict(each) for each in attempts], "format": FORMAT, "kind": _PAGE}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_page(data: bytes) -> tuple[StagedAttempt, ...]:
    """Raises CorruptEntry when the bytes are not such a list."""
    try:
        return _attempts(_fields(data, _PAGE))
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(f"{type(error).__name__}: {error}") from error


def decode_claim_record(data: bytes) -> ClaimRecord:
    """Raises CorruptEntry when the bytes are not such a record."""
    fields = _fields(data, ClaimRecord.__name__)
    try:
        return ClaimRecord(
            _batch(fields),
            ClaimedIds(**fields["ids"]),  # type: ignore[arg-type]
            str(fields["start"]),
            _former(fields),
            dict(fields["routes"]),  # type: ignore[call-overload]
            dict(fields["positions"]),  # type: ignore[call-overload]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(f"{type(error).__name__}: {error}") from error


def _fields(data: bytes, kind: str) -> dict[str, object]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise _corrupt(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or (fields.get("format"), fields.get("kind")) != (FORMAT, kind):
        raise _corrupt(f"not a {kind} of format {FORMAT}")
    return fields


def _batch(fields: dict[str, object]) -> RangeBatch:
    return RangeBatch(**fields["batch"])  # type: ignore[arg-type]


def _attempts(fields: dict[str, object]) -> tuple[StagedAttempt, ...]:
    return tuple(StagedAttempt(**each) for each in fields["attempts"])  # type: ignore[attr-defined]


def _paged(fields: object) -> AttemptPages | None:
    if fields is None:
        return None
    return AttemptPages(**(fields | {"ids": tuple(fields["ids"])}))  # type: ignore[operator, index]


def _former(fields: dict[str, object]) -> tuple[str, ...]:
    return tuple(map(str, fields["former"]))  # type: ignore[call-overload]


def _corrupt(reason: str) -> CorruptEntry:
    return CorruptEntry(f"a journal of the sink has a record that the sink did not write: {reason}")
