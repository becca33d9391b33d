"""Proves at the owner of a topic that snapshot + replay == fold, while the topic serves: for its producers, and for its
subscriptions.

    SNAPSHOT  the newest complete snapshot is read, as a takeover does
    REPLAY    some producers of the owner are captured, at its present position P; the log is folded up to P, and those
              producers are compared; again with the next ones, up to the last
    ACKS      the same for some subscriptions at a time: the ack log is folded up to the owner's present position in it,
              and their digests are compared
    DONE      all were compared: `differences` and `ack_differences` are the verdict
    FAILED    something that the proof needs is gone or cannot be read: nothing was proved

Rules
- The takeover's own parts read and fold (`ChainReplay`, `SnapshotFold`, `LogFold`). Nothing is fenced or written.
- What is compared was captured in one step, as of exactly the position that the fold has then. So the topic need not
  stop, and the memory is that of one more fold and of the records of one step.
- Producers of the log that the owner does not have are found by their count; then all ids are compared. Of
  subscriptions, which are few, the numbers are compared at the end.
- A difference is reported with the producer, what the log says, and what the owner has.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.digest import state_digest
from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.chain.replay import ChainReplay, EntriesUnavailable, ReplayEffect, ReplayEvent, TakeoverFailed
from oncelog.core.chain.replay_list import ReplayList
from oncelog.core.errors import InvariantViolated, LogHole, TopicLoading
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import LedgerId, Position, ProducerId, SubscriptionNumber
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import record_of_expired
from oncelog.core.records.records import PageKey, ReadRecord, RecordRead
from oncelog.core.topic.fold_differences import TOPIC_FIELDS, Difference, differences
from oncelog.core.topic.folds import AckFold, LogFold, SnapshotFold
from oncelog.core.topic.topic import Phase, Topic

#: Producers that are captured in one step: 20 ms at most, where each has 64 recent batches.
STEP_PRODUCERS = 200
#: Subscriptions of one step: a digest of 1 MiB of acknowledgements takes 3 ms.
STEP_SUBSCRIPTIONS = 8
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
    ACKS = "acks"
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


@dataclass(frozen=True, slots=True)
class AckDifference:
    """expected: what snapshot and ack log say. found: what the owner has."""

    subscription: str
    field: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class _AckCapture:
    """The owner's subscriptions at one moment. states: {number: (name, digest, how it is shown)} of some. names: of
    all."""

    position: Position
    next_number: SubscriptionNumber
    states: dict[SubscriptionNumber, tuple[str, str, str]]
    names: dict[SubscriptionNumber, str]
    state_bytes: int


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
        step_subscriptions: int = STEP_SUBSCRIPTIONS,
    ) -> None:
        """Raises TopicLoading unless the topic serves."""
        serving = topic.serving
        given_up = serving is not None and (serving.log.given_up or serving.acks.given_up)
        if topic.phase is not Phase.SERVING or serving is None or given_up:
            raise TopicLoading("the topic is being taken over: try again")
        self._topic, self._ownership, self._serving = topic, topic.ownership, serving
        self._emit = emit
        self._checksum = checksum
        self._step_producers, self._step_subscriptions = step_producers, step_subscriptions
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
        self.ack_differences: list[AckDifference] = []
        self.ack_differences_count = 0
        self.subscriptions_compared = 0
        self.subscription_count = len(serving.acks.state.subscriptions)
        #: the last position in the ack log at which subscriptions were compared
        self.ack_position: Position | None = None
        self._numbers = iter(list(serving.acks.state.subscriptions))
        self._ack_fold: AckFold | None = None
        self._acks_captured: _AckCapture | None = None
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
        reads = self.state in (VerificationState.REPLAY, VerificationState.ACKS)
        return missing.reason if missing is not None and reads else None

    def require_current(self) -> None:
        """Raises TopicLoading once the topic is not served here any more, or was taken over again."""
        if self._topic.serving is not self._serving:
            raise TopicLoading("the topic was taken over meanwhile: verify it again")

    def handle(self, event: VerificationEvent) -> None:
        """Take one completion."""
        if self._chain is not None:
            if isinstance(event, RecordRead) and isinstance(event.key, PageKey):
                self._chain.page_read(event)
            elif isinstance(event, EntriesUnavailable) and event.ledger_id < self._floor:
                self._chain.stop()
                reason = f"ledger {event.ledger_id} was trimmed meanwhile: {event.reason}"
                self._fail(TakeoverFailed(reason, LogHole.code, event.ledger_id, event.first))
            else:
                self._chain.handle(event)
        elif isinstance(event, RecordRead):
            self._read_snapshot(_if_closed(event.value))

    @property
    def _floor(self) -> LedgerId:
        """Of the chain that is being read: nothing below it is waited for. 0 for snapshots, of which an older one is
        read instead."""
        match self.state:
            case VerificationState.REPLAY:
                return self._ownership.record.deleted_below
            case VerificationState.ACKS:
                return self._ownership.record.acks_deleted_below
            case _:
                return LedgerId(0)

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
        fold.no_snapshots = not self._serving.cursor.record.ledgers
        self.state = VerificationState.REPLAY
        self.compare_next()

    def _read(
        self,
        ledgers: ReplayList,
        fold: LogFold | SnapshotFold | AckFold,
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
        """Capture what is compared next, and fold the log, or the ack log, up to the same position."""
        if self.state is VerificationState.ACKS:
            self._compare_subscriptions()
            return
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
            self.state = VerificationState.ACKS
            self._emit(CompareNext(0))

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

    # --- the ack log --------------------------------------------------------------------------------------------------

    def _compare_subscriptions(self) -> None:
        """Capture the next subscriptions, and fold the ack log up to the same position."""
        record, state = self._ownership.record, self._serving.acks.state
        if self._ack_fold is None:
            self._ack_fold = AckFold(record, self._checksum)
            self._ack_fold.no_snapshots = not self._serving.cursor.record.ledgers
            self._ack_fold.state = self.snapshot.subscriptions
        some = [state.subscriptions[each] for each in self._next_numbers()]
        self._acks_captured = _AckCapture(
            state.position, state.next_number,
            {each.number: (each.name, state_digest(each), _described(each)) for each in some},
            {number: each.name for number, each in state.subscriptions.items()},
            sum(each.state_bytes for each in some),
        )  # fmt: skip
        last = record.acks[-1] if record.acks else None
        ledgers = ReplayList(self._emit, record.topic_id, [LedgerLink(ledger_id, 0) for ledger_id in record.acks])
        self._read(ledgers, self._ack_fold, _end_of(self._serving.acks.ledgers, last), self._acks_caught_up)

    def _next_numbers(self) -> list[SubscriptionNumber]:
        """Those that were not deleted since the begin."""
        known = self._serving.acks.state.subscriptions
        return list(islice((number for number in self._numbers if number in known), self._step_subscriptions))

    def _acks_caught_up(self) -> None:
        """The fold has come to the position of what was captured."""
        captured, fold = self._acks_captured, self._ack_fold
        if captured is None or fold is None:
            raise InvariantViolated("a fold of the ack log is compared with nothing")
        state = fold.state
        for field, log, owner in (
            ("position", state.position, captured.position),
            ("next_number", state.next_number, captured.next_number),
        ):
            if log != owner and not any(each.field == field for each in self.ack_differences):
                self._differ_in_acks(AckDifference("", field, str(log), str(owner)))
        for number, (name, digest, shown) in captured.states.items():
            folded = state.subscriptions.get(number)
            if folded is None:
                self._differ_in_acks(AckDifference(name, "subscription", "unknown", shown))
            elif state_digest(folded) != digest:
                self._differ_in_acks(AckDifference(name, "state", _described(folded), shown))
        self.ack_position, self.subscription_count = captured.position, len(captured.names)
        self.subscriptions_compared += len(captured.states)
        if captured.states:
            self._emit(CompareNext(captured.state_bytes))
            return
        for number, folded in state.subscriptions.items():
            if number not in captured.names:
                self._differ_in_acks(AckDifference(folded.name, "subscription", _described(folded), "unknown"))
        self._count_chain()
        self.state = VerificationState.DONE

    def _differ_in_acks(self, found: AckDifference) -> None:
        self.ack_differences_count += 1
        if len(self.ack_differences) < DIFFERENCES_MAX:
            self.ack_differences.append(found)


def _described(state: SubscriptionState) -> str:
    acks = state.acks
    return (
        f"first unacknowledged {acks.mark_delete}, {acks.acked_count} acknowledged above it, seek epoch "
        f"{state.seek_epoch}, digest {state_digest(state)}"
    )


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
