"""The newest batches of a topic that were answered without being stored, because they were refused or stored before:
for operators who ask what became of one message.

A row is one batch, or a run of batches: a producer that sends everything again makes few rows, and a program that sends
the same id again and again makes one. Rows are made where a batch is answered without being stored, never where one is
stored. They begin with the process that serves the topic, and are not in the log. When there are too many, the rows of
a run become one that only knows its ends; if there is no run, the oldest row is dropped.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.formats.batch import BatchHeader, Buffer, decode_ids
from oncelog.core.formats.outcome import Outcome, ResultRange
from oncelog.core.ids import ProducerId, SequenceId

#: Of one topic.
REFUSALS_MAX = 100
#: Batches of one run follow each other at least so fast.
_RUN_GAP_MS = 10_000
_DIFFERS = "content_differs"


@dataclass(slots=True)
class Refusal:
    """Ids first..last of one producer got `verdict`, a kind of result, content_differs, or the code of an error: each
    of them, if dense; otherwise only the first and the last one are known. times: how often all of them did. peer:
    host:port of the client that sent the last batch; empty: unknown."""

    producer_id: ProducerId
    verdict: str
    first: SequenceId
    last: SequenceId
    dense: bool
    first_ms: int
    last_ms: int
    peer: str
    times: int = 1


class RefusalsOfId(NamedTuple):
    """What one id got instead of being stored.

    counts: {verdict: how often}; content_differs counts as duplicate, too. possible_counts: {verdict: how often at most
    besides}, in runs with holes of which only the first and the last id are known. first_ms..last_ms: the time of all
    these; last_peer: who sent the last; None: there was none. complete: false: older rows were dropped, so before
    since_ms there may have been more.
    """

    counts: dict[str, int]
    possible_counts: dict[str, int]
    first_ms: int | None
    last_ms: int | None
    last_peer: str
    since_ms: int
    complete: bool


class Refusals:
    """Of one topic, since `since_ms`."""

    __slots__ = ("_dropped_ms", "_rows", "_since_ms")

    def __init__(self, since_ms: int) -> None:
        self._since_ms = since_ms
        #: the newest last; None: nothing was refused, which is so for nearly all topics
        self._rows: list[Refusal] | None = None
        self._dropped_ms: int | None = None

    def refused(self, batch: BatchHeader, verdict: str, *, now_ms: int, peer: str) -> None:
        """A whole batch got this verdict."""
        self._add(Refusal(batch.producer_id, verdict, batch.first, batch.last, batch.dense, now_ms, now_ms, peer))

    def known(self, batch: BatchHeader, deltas: Buffer, outcome: Outcome, *, now_ms: int, peer: str) -> None:
        """The batch, or the beginning of it, got these results. One row for each kind, however many ranges there are:
        a hostile batch has thousands."""
        if len(outcome) == 1 and outcome[0].count == batch.count:
            self.refused(batch, _verdict_of(outcome[0]), now_ms=now_ms, peer=peer)
            return
        ids = decode_ids(batch, deltas)
        spans: dict[str, tuple[int, int, int]] = {}
        at = 0
        for result in outcome:
            kind, end = _verdict_of(result), at + result.count
            begin, _, count = spans.get(kind, (at, at, 0))
            spans[kind] = begin, end - 1, count + result.count
            at = end
        for kind, (begin, last_at, count) in spans.items():
            first, last = SequenceId(ids[begin]), SequenceId(ids[last_at])
            dense = count == last - first + 1
            self._add(Refusal(batch.producer_id, kind, first, last, dense, now_ms, now_ms, peer))

    def _add(self, new: Refusal) -> None:
        rows = self._rows
        if rows is None:
            rows = self._rows = []
        for at in range(len(rows) - 1, -1, -1):
            if (rows[at].producer_id, rows[at].verdict) == (new.producer_id, new.verdict):
                if _joined(rows[at], new):
                    rows.append(rows.pop(at))
                    return
                break
        rows.append(new)
        if len(rows) > REFUSALS_MAX and not _condensed(rows):
            self._dropped_ms = rows.pop(0).last_ms

    def of(self, producer_id: ProducerId, sequence_id: SequenceId) -> RefusalsOfId:
        """What is remembered of one id."""
        counts: dict[str, int] = {}
        possible: dict[str, int] = {}
        found = [
            row for row in self._rows or () if row.producer_id == producer_id and row.first <= sequence_id <= row.last
        ]
        for row in found:
            counted = counts if row.dense or sequence_id in (row.first, row.last) else possible
            # As the statistics of the topic count them: a duplicate with other content is a duplicate, too.
            for verdict in ("duplicate", row.verdict) if row.verdict == _DIFFERS else (row.verdict,):
                counted[verdict] = counted.get(verdict, 0) + row.times
        return RefusalsOfId(
            counts,
            possible,
            min((row.first_ms for row in found), default=None),
            found[-1].last_ms if found else None,
            found[-1].peer if found else "",
            self._since_ms if self._dropped_ms is None else self._dropped_ms,
            self._dropped_ms is None,
        )


def _verdict_of(result: ResultRange) -> str:
    """content_differs: of a duplicate, at least one message of which is another one than the stored one."""
    return _DIFFERS if result.content_differs else result.kind.name.lower()


def _joined(row: Refusal, new: Refusal) -> bool:
    """Whether the row now stands for the new refusal, too: it is the same batch again, or has the ids behind it."""
    if (row.first, row.last, row.dense) == (new.first, new.last, new.dense):
        row.times += 1
    elif row.dense and new.dense and row.last + 1 == new.first and _one_run(row, new):
        row.last = new.last
    else:
        return False
    row.last_ms, row.peer = new.last_ms, new.peer
    return True


def _one_run(row: Refusal, new: Refusal) -> bool:
    return row.times == new.times == 1 and row.last < new.first and new.first_ms - row.last_ms <= _RUN_GAP_MS


def _condensed(rows: list[Refusal]) -> bool:
    """Whether two rows of one run, the oldest such, became one, which no longer knows the ids between its ends."""
    before: dict[tuple[ProducerId, str], int] = {}
    for at, row in enumerate(rows):
        key = row.producer_id, row.verdict
        former = before.get(key)
        if former is not None and _one_run(rows[former], row):
            row.first, row.first_ms, row.dense = rows[former].first, rows[former].first_ms, False
            del rows[former]
            return True
        before[key] = at
    return False
