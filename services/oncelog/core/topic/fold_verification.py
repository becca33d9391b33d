"""Proves at the owner of a topic that snapshot + replay == fold, while the topic serves.

    SNAPSHOT  the newest complete snapshot is read, as a takeover does
    REPLAY    some producers of the owner are captured, at its present position P; the log is folded up to P, and those
              producers are compared; again with the next ones, up to the last
    DONE      all were compared: `differences` is the verdict
    FAILED    something that the proof needs is gone or cannot be read: nothing was proved

Rules
- The takeover's own parts read and fold (`ChainReplay`, `SnapshotFold`, `LogFold`). Nothing is fenced or written.
- What is compared was captured in one step, as of exactly the position that the fold has then. So the topic need not
  stop, and the memory is that of one more fold and of the records of one step.
- Producers of the log that the owner does not have are found by their count; then all ids are compared.
- A difference is reported with the producer, what the log says, and what the owner has.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice

from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.chain.replay import ChainReplay, ReplayEffect, ReplayEvent, TakeoverFailed
from oncelog.core.chain.replay_list import ReplayList
from oncelog.core.errors import InvariantViolated, TopicLoading
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import LedgerId, Position, ProducerId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import record_of_expired
from oncelog.core.records.records import PageKey, ReadRecord, RecordRead
from oncelog.core.topic.fold_differences import TOPIC_FIELDS, Difference, differences
from oncelog.core.topic.folds import LogFold, SnapshotFold
from oncelog.core.topic.topic import Phase, Topic

#: Producers that are captured in one step: 20 ms at most, where each has 64 recent batches.
STEP_PRODUCERS = 200
#: Differences that are kept; all are counted.
DIFFERENCES_MAX = 20


@dataclass(frozen=True, slots=True)
class CompareNext:
    """A step is over: let others have their turn, and call `compare_next`. compared_bytes: of the records."""

    compared_bytes: int


VerificationEffect = ReplayEffect | CompareNext
VerificationEvent = ReplayEvent | RecordRead[PageKey, ListPage]


class VerificationState(Enum):
    SNAPSHOT = "snapshot"
    REPLAY = "replay"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Capture:
    """The owner's fold at one moment. of_topic: its TOPIC_FIELDS. records: of some producers. ids: of all, if they are
    needed."""

    position: Position
    of_topic: tuple[object, ...]
    producer_count: int
    records: tuple[tuple[ProducerId, bytes], ...]
    ids: frozenset[ProducerId] | None


def _nothing() -> None:
    pass


class FoldVerification:
    """One attempt, over when the topic's owner stops serving it: the shell then drops it."""

    def __init__(
        self,
        topic: Topic,
        emit: Callable[[VerificationEffect], None],
        checksum: Checksum,
        *,
        step_producers: int = STEP_PRODUCERS,
    ) -> None:
        """Raises TopicLoading unless the topic serves."""
        serving = topic.serving
        if topic.phase is not Phase.SERVING or serving is None or serving.log.given_up:
            raise TopicLoading("the topic is being taken over: try again")
        self._topic, self._ownership, self._serving = topic, topic.ownership, serving
        self._emit = emit
        self._checksum = checksum
        self._step_producers = step_producers
        self.state = VerificationState.SNAPSHOT
        self.failure: TakeoverFailed | None = None
        #: the number of the newest snapshot that the owner knew at the begin
        self.newest_number = serving.cursor.number
        self.snapshot = SnapshotFold(checksum, serving.cursor.settings.recent_bytes_max)
        self.differences: list[Difference] = []
        self.differences_count = 0
        self.compared = 0
        self.producer_count = len(serving.log.table.state.producers)
        #: the last position at which producers were compared
        self.position: Position | None = None
        self._ids = iter(list(serving.log.table.state.producers))
        self._ids_wanted = False
        #: entries and bytes of the chains that are over
        self._entries = self._bytes = 0
        self._chain: ChainReplay | None = None
        self._log_fold: LogFold | None = None
        self._captured: _Capture | None = None

    @property
    def entries_read(self) -> int:
        return self._entries + (self._chain.replayed_entries if self._chain else 0)

    @property
    def bytes_read(self) -> int:
        """Bodies of the entries, as they are stored."""
        return self._bytes + (self._chain.replayed_bytes if self._chain else 0)

    @property
    def waiting(self) -> str | None:
        """Which entries no storage node gives now."""
        missing = self._chain.unavailable if self._chain else None
        return missing.reason if missing is not None and self.state is VerificationState.REPLAY else None

    def require_current(self) -> None:
        """Raises TopicLoading once the topic is not served here any more, or was taken over again."""
        if self._topic.serving is not self._serving:
            raise TopicLoading("the topic was taken over meanwhile: verify it again")

    def handle(self, event: VerificationEvent) -> None:
        """Take one completion."""
        if self._chain is not None:
            if isinstance(event, RecordRead) and isinstance(event.key, PageKey):
                self._chain.page_read(event)
            else:
                self._chain.handle(event)
        elif isinstance(event, RecordRead):
            self._read_snapshot(_if_closed(event.value))

    def _fail(self, failure: TakeoverFailed) -> None:
        self.state, self.failure = VerificationState.FAILED, failure

    # --- the snapshot -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        cursor = self._serving.cursor
        last = cursor.record.ledgers[-1].ledger_id if cursor.record.ledgers else None
        end = _end_of(cursor.ledgers, last)
        if last is not None and end is None:
            self._emit(ReadRecord(LedgerKey(last)))  # an earlier owner wrote it
        else:
            self._read_snapshot(end)

    def _read_snapshot(self, end: LedgerMetadata | None) -> None:
        links = [LedgerLink(link.ledger_id, 0) for link in self._serving.cursor.record.ledgers]
        ledgers = ReplayList(self._emit, self._ownership.topic_id, links, newest_first=True)
        self._read(ledgers, self.snapshot, end, self._snapshot_read)

    def _snapshot_read(self) -> None:
        fold = self._log_fold = LogFold(self._ownership.record, self.snapshot.state)
        fold.unavailable = self._chain.unavailable if self._chain is not None else None
        self.state = VerificationState.REPLAY
        self.compare_next()

    def _read(
        self,
        ledgers: ReplayList,
        fold: LogFold | SnapshotFold,
        end: LedgerMetadata | None,
        done: Callable[[], None],
    ) -> None:
        self._count_chain()
        chain = self._chain = ChainReplay(
            self._emit, ledgers, fold, self._checksum, fenced=_nothing, replayed=done, failed=self._fail
        )
        chain.begin_at(end)
        chain.replay()

    def _count_chain(self) -> None:
        self._entries, self._bytes, self._chain = self.entries_read, self.bytes_read, None

    # --- the log ------------------------------------------------------------------------------------------------------

    def compare_next(self) -> None:
        """Capture the next producers, and fold the log up to the same position."""
        if self._log_fold is None:
            raise InvariantViolated("the log is verified before a snapshot was read")
        record, state = self._ownership.record, self._serving.log.table.state
        records = tuple((pid, state.producers.record(pid)) for pid in islice(self._ids, self._step_producers))
        self._captured = _Capture(
            state.position, _of_topic(state), len(state.producers), records,
            frozenset(state.producers) if self._ids_wanted else None,
        )  # fmt: skip
        last = record.ledgers[-1].ledger_id if record.ledgers else None
        ledgers = ReplayList(self._emit, record.topic_id, record.ledgers, record.pages)
        self._read(ledgers, self._log_fold, _end_of(self._serving.log.ledgers, last), self._caught_up)

    def _caught_up(self) -> None:
        """The fold has come to the position of what was captured."""
        captured, fold = self._captured, self._log_fold
        if captured is None or fold is None:
            raise InvariantViolated("a fold is compared with nothing")
        self._compare(captured, fold)
        self.position, self.producer_count = captured.position, captured.producer_count
        self.compared += len(captured.records)
        self._ids_wanted = not captured.records and len(fold.state.producers) != captured.producer_count
        if captured.records or (self._ids_wanted and captured.ids is None):
            self._emit(CompareNext(sum(len(record) for _, record in captured.records)))
        else:
            self._count_chain()
            self.state = VerificationState.DONE

    def _compare(self, captured: _Capture, fold: LogFold) -> None:
        state = fold.state
        for pid, found in captured.records:
            self._differ(differences(pid, state.producers.record(pid), found))
        for field, log, owner in zip(TOPIC_FIELDS, _of_topic(state), captured.of_topic, strict=True):
            known = any(each.field == field and not each.producer_id for each in self.differences)
            if log != owner and not known:
                self._differ([Difference("", 0, field, str(log), str(owner))])
        for pid in [] if captured.ids is None else [pid for pid in state.producers if pid not in captured.ids]:
            self._differ(differences(pid, state.producers.record(pid), record_of_expired(pid)))

    def _differ(self, found: list[Difference]) -> None:
        self.differences_count += len(found)
        self.differences += found[: DIFFERENCES_MAX - len(self.differences)]


def _of_topic(state: DedupState) -> tuple[object, ...]:
    return tuple(getattr(state, field) for field in TOPIC_FIELDS)


def _if_closed(record: LedgerMetadata | ListPage | None) -> LedgerMetadata | None:
    return record if isinstance(record, LedgerMetadata) and record.state is LedgerState.CLOSED else None


def _end_of(ledgers: ManagedLedger, last: LedgerId | None) -> LedgerMetadata | None:
    """The last ledger of a chain with the end that this owner has confirmed; None: it does not write that ledger."""
    writer = ledgers.writer
    if writer is None or writer.ledger_id != last:
        return None
    return replace(writer.metadata, state=LedgerState.CLOSED, end=writer.last_add_confirmed)
