"""The planted bugs of the cluster: see `planted_bug`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.chain import ownership_proof
from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.chain.ownership import Ownership, OwnershipState
from oncelog.core.chain.ownership_proof import OwnershipProof
from oncelog.core.chain.replay import ChainReplay, TakeoverFailed
from oncelog.core.errors import ProducerFenced, StaleSequence
from oncelog.core.formats.batch import decode_batch, peek_batch
from oncelog.core.formats.opening import Granted, ProducerInstance
from oncelog.core.formats.outcome import ResultKind, ResultRange, refuses
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import (
    BEFORE_ALL,
    NO_INSTANCE,
    NO_SEQUENCE,
    EntryId,
    Generation,
    Incarnation,
    Position,
    ProducerId,
)
from oncelog.core.ledger import recovery_range
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.node.answers import StorageAnswers
from oncelog.core.node.node import StorageNode
from oncelog.core.node.review import LedgerReviews
from oncelog.core.publishing import dedup_table as dedup
from oncelog.core.publishing import opening_queue, repeated_content
from oncelog.core.publishing import producers as dedup_producers
from oncelog.core.publishing.dedup_table import DedupTable, NothingNew
from oncelog.core.publishing.log import TopicLog
from oncelog.core.publishing.opening_rules import OpeningRules
from oncelog.core.publishing.openings import Openings
from oncelog.core.publishing.producer_record import encode_record
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.reconnect_grace import ReconnectGrace
from oncelog.core.publishing.sessions import Sessions
from oncelog.core.rebuild.join import _TopicJoin
from oncelog.core.records.id_claim import CounterAccess, CounterRecord, IdClaim
from oncelog.core.records.records import ReadRecord, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.retention.topic_retention import TopicRetention
from oncelog.core.sdk.producer.events import Fail
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.core.snapshots.dedup_encoder import SnapshotEncoder
from oncelog.core.snapshots.snapshot_writer import SnapshotWriter
from oncelog.core.topic.folds import LogFold
from oncelog.core.topic.takeover import Takeover
from oncelog.core.topic_events.effects import AnswerOpen
from tests.core.rebuild.test_rebuild_stories import test_story
from tests.core.retention.test_topic_space import test_trim_of_another_list_does_not_end_that_of_the_log
from tests.simulation.clients.end_of_log_client import Questioner
from tests.simulation.cluster import Rules
from tests.simulation.planted.ack_mutants import ACK_MUTANTS
from tests.simulation.planted.consumer_mutants import CONSUMER_MUTANTS
from tests.simulation.planted.effect_mutants import EFFECT_MUTANTS
from tests.simulation.planted.gateway_mutants import GATEWAY_MUTANTS
from tests.simulation.planted.lease_mutants import EXPIRED_MUTANTS, LEASE_MUTANTS
from tests.simulation.planted.page_mutants import PAGE_MUTANTS, at_any_trim
from tests.simulation.planted.past_mutants import PAST_MUTANTS
from tests.simulation.planted.planted_bug import Mutant
from tests.simulation.planted.repair_mutants import REPAIR_MUTANTS
from tests.simulation.planted.restore_mutants import RESTORE_MUTANTS
from tests.simulation.servers.nodes import storage_server
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners import owner_server


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


# --- dedup ------------------------------------------------------------------------------------------------------------

_check_known = DedupTable._check_known
_append_batch = TopicLog.append_batch
_check, _accepted = DedupTable.check, DedupTable.accepted
_end = ProducerSession._end
_open, _resume = Openings._open, Openings._resume


def _one_mark(table: DedupTable, *arguments: Any) -> Any:
    verdict = _check_known(table, *arguments)
    return replace(verdict, settles_at=BEFORE_ALL) if isinstance(verdict, NothingNew) else verdict


def _by_range(ids: Any, runs: Any, *, floor: int, mode: Any) -> Any:
    """Treats every id below the mark as stored."""
    run = next((r for r in runs if ids[0] <= r.last), None)
    if run is None or ids[0] < run.first:
        return (ResultRange(ResultKind.DUPLICATE, len(ids), None, 0),)
    return (ResultRange(ResultKind.DUPLICATE, len(ids), run.position, run.offset),)


def _condemned(table: DedupTable, *arguments: Any) -> Any:
    """Treats a batch with one stale id as never stored."""
    verdict = _check_known(table, *arguments)
    mixed = isinstance(verdict, NothingNew | dedup.Accept) and refuses(verdict.known)
    return dedup.Refused(StaleSequence()) if mixed else verdict


def _as_sent(data: Any, **_: Any) -> int:
    """Compares the checksums of the whole batches, with the times at which they were packed."""
    return peek_batch(data).checksum


def _sure_of_nothing(session: ProducerSession, *arguments: Any) -> Any:
    """Reports every failed batch as not stored."""
    effects = _end(session, *arguments)
    return [replace(effect, stored=False) if isinstance(effect, Fail) else effect for effect in effects]


def _without_skip_first(log: TopicLog, batch: Any, *, skip_first: int) -> Any:
    return _append_batch(log, batch, skip_first=0)


def _forget_in_flight_only(log: TopicLog) -> Any:
    """Does not roll back the accepted marks."""
    given_up = list(log.in_flight)
    log.in_flight.clear()
    log.next_index = log.table.state.next_index
    return given_up


def _newest_first(sessions: Sessions, event: Any) -> None:
    session = sessions.open_sessions.get(event.session)
    if session is not None:
        session.received.extendleft(reversed(event.batches))
        if session.blocked_on is None:
            sessions._check(session)


def _resume_unknown(openings: Openings, event: Any) -> Any:
    """Accepts any producer id that a client presents."""
    pid = event.resume.producer_id if event.resume is not None else None
    if pid is None or openings.table.knows(pid):
        return _resume(openings, event)
    openings._leave(event.call)
    session = openings.sessions.start("unknown", event.resume, ended=ProducerFenced())
    granted = Granted(session.number, "unknown", event.resume, NO_SEQUENCE, final=False)
    openings._step.emit(AnswerOpen(event.call, granted))
    return None


def _check_unknown(table: DedupTable, batch: Any, deltas: Any) -> Any:
    return _check(table, batch, deltas) if table.knows(batch.producer_id) else dedup.ACCEPT


def _accept_unknown(table: DedupTable, batch: Any, deltas: Any, *, position: Any, skip_first: int) -> None:
    if table.knows(batch.producer_id):
        _accepted(table, batch, deltas, position=position, skip_first=skip_first)


def _open_at_once(openings: Openings, opening: Any) -> None:
    """A grant is answered when it is appended, with the accepted mark."""
    _open(openings, opening)
    newest = openings.log.in_flight[-1] if openings.log.in_flight else None
    if newest is None or newest.grant is None or newest.call != opening.event.call:
        return
    newest.call = None
    grant = newest.grant
    instance = ProducerInstance(grant.producer_id, grant.generation)
    session = openings.sessions.start(grant.name, instance, ended=ProducerFenced())
    granted = Granted(session.number, grant.name, instance, grant.persisted, final=True)
    openings._step.emit(AnswerOpen(opening.event.call, granted))


def _unnamed_instance(_: Any) -> None:
    """Treats every request as a new instance."""


# --- snapshots --------------------------------------------------------------------------------------------------------


def _without_generation(producer: Any) -> bytes:
    return encode_record(replace(producer, generation=Generation(1)))


def _without_instance(producer: Any) -> bytes:
    return encode_record(replace(producer, instance_id=NO_INSTANCE))


def _changes_forgotten(encoder: SnapshotEncoder) -> list[ProducerId]:
    """What changes while a snapshot is encoded in steps is encoded by none of them."""
    encoder.state.dirty.clear()
    return []


def _newest_base(cursor: SnapshotWriter) -> Position | None:
    return max((base.log for base in cursor.bases.values()), default=None)


# --- ledgers ----------------------------------------------------------------------------------------------------------

_close = ManagedLedger._close


def _one_answer(_: LedgerWriter, answers: int) -> bool:
    return answers.bit_count() >= 1


def _closed_once_asked(ledgers: ManagedLedger) -> None:
    """The roll continues while the compare-and-set to CLOSED is in flight."""
    writer = ledgers.writer
    if writer is not None and writer.idle and ledgers.state.value == "rolling":
        _close(ledgers)
        writer.closed()
        ledgers.state = type(ledgers.state).IDLE
        ledgers._user.ledger_closed(failed=False)


def _retry_link(ownership: Ownership, event: Any) -> Any:
    """After a conflict, writes the same ledger over the newer record."""
    written, ownership._writing = ownership._writing, None
    if written is None or ownership.state is OwnershipState.DEPOSED:
        return None
    if event.status is not WriteStatus.OK:
        ownership._writing = written
        ownership._emit(ReadRecord(ownership.key))
        return None
    ownership._writing = written
    return _record_written(ownership, event)


def _retry_read(ownership: Ownership, event: Any) -> Any:
    written = ownership._writing
    if written is None or event.value is None or event.version == ownership.version:
        return _record_read(ownership, event)
    link = written.ledgers[-1]
    if link in event.value.ledgers or any(other.ledger_id >= link.ledger_id for other in event.value.ledgers):
        return _record_read(ownership, event)
    ownership._writing = event.value.with_ledger(link)
    ownership.version = event.version
    ownership._emit(WriteRecord(ownership.key, ownership._writing, event.version))
    return None


_record_written, _record_read = Ownership.record_written, Ownership.record_read


# --- storage nodes ----------------------------------------------------------------------------------------------------

_server_read, _server_append, _server_fence = StorageServer.read, StorageServer.append, StorageServer.fence


def _read_without_fence(
    server: StorageServer, target: Any, ledger_id: Any, span: Any, reply: Any, *, fence: bool
) -> None:
    _server_read(server, target, ledger_id, span, reply, fence=False)


def _answers_for_all_reads(
    server: StorageServer, _: Any, ledger_id: Any, span: Any, reply: Any, *, fence: bool
) -> None:
    _server_read(server, server.incarnation, ledger_id, span, reply, fence=fence)


def _answers_for_all_fences(server: StorageServer, _: Any, ledger_id: Any, reply: Any) -> None:
    _server_fence(server, server.incarnation, ledger_id, reply)


_ledger_erased = LedgerReviews.erased


def _erased_without_tombstone(reviews: LedgerReviews, ledger_id: Any, *, deleted: bool) -> Any:
    """Forgets the ledger completely."""
    ledger = reviews._ledgers[ledger_id]
    effects = _ledger_erased(reviews, ledger_id, deleted=deleted)
    reviews._ledgers.tombstones.pop(ledger_id, None)
    ledger.erased, ledger.fenced = False, False
    return effects


def _three_further(confirmed: Position) -> Position:
    return Position(confirmed.ledger_id, EntryId(confirmed.entry_id + 3))


# --- ids --------------------------------------------------------------------------------------------------------------

_shows = IdClaim._shows


def _believe_the_number(self: IdClaim, record: CounterRecord, claim: CounterRecord) -> bool:
    return record.next == claim.next or _shows(self, record, claim)


async def _absent_is_new(_: IdClaim, counter: CounterAccess) -> tuple[CounterRecord, int]:
    """The next claimer begins at 1."""
    record, version = await counter.read()
    return record or CounterRecord(1, Incarnation(""), ""), version


# --- takeover ---------------------------------------------------------------------------------------------------------


_start, _next_ledger, _now_fenced = ChainReplay.start, ChainReplay._next_ledger, ChainReplay._now_fenced


def _snapshot_first(replay: ChainReplay, *arguments: Any, **named: Any) -> None:
    if isinstance(replay._fold, LogFold):
        _now_fenced(replay)
    else:
        _start(replay, *arguments, **named)


_cannot_begin = LogFold.cannot_begin


def _whole_from_message_0(fold: LogFold, first: LedgerLink | None) -> TakeoverFailed | None:
    """Deleted ledgers without messages, which held grants, are not missed."""
    if fold.position == BEFORE_ALL and (first is None or first.base_index == 0):
        return None
    return _cannot_begin(fold, first)


def _replay_closed_ones(replay: ChainReplay) -> None:
    """The log's last ledger is fenced after the others were read, and is not read again."""
    following = replay._list.next
    if isinstance(replay._fold, LogFold) and following is not None and following.ledger_id == replay._list.last:
        _start(replay)
    else:
        _next_ledger(replay)


def _fenced_last(replay: ChainReplay) -> None:
    if isinstance(replay._fold, LogFold):
        replay._end()
    else:
        _now_fenced(replay)


def _forget_without_floor(producer: Any) -> None:
    producer.recent_batches.drop_first(len(producer.recent_batches))


def _without_looking_inside(data: Any, checksum: Any, limits: Any) -> Any:
    return decode_batch(data, checksum)


MUTANTS = (
    Mutant("one mark instead of two", "marks-of-a-failed-write", 28, ((DedupTable, "_check_known", _one_mark),)),
    Mutant("ack at one answer", "", 1, ((LedgerWriter, "_acked", _one_answer),)),
    Mutant("no member is fenced", "former-incarnation", 3, ((StorageNode, "_fence", _always(None)),)),
    Mutant("recovery reads that do not fence", "", 313, ((StorageServer, "read", _read_without_fence),)),
    Mutant(
        "end declared on one negative", "", 24,
        ((recovery_range, "missing_is_certain", lambda negatives, **_: negatives >= 1),),
    ),
    Mutant("ack before fsync", "", 13, ((StorageAnswers, "may_answer", _always(value=True)),)),
    Mutant("fence forgotten on restart", "", 516, ((StorageNode, "restore_fence", _always(None)),)),
    Mutant(
        "snapshot without generations", "id-between-stored-ids", 12,
        ((dedup_producers, "encode_record", _without_generation),),
    ),
    Mutant("changes during a snapshot left out", "unreadable-snapshot", 1_000_056, ((SnapshotEncoder, "_changed",
    _changes_forgotten),)), Mutant(
        "unknown producer id accepted", "forgotten-producer", 39,
        (
            (Openings, "_resume", _resume_unknown), (DedupTable, "check", _check_unknown),
            (DedupTable, "accepted", _accept_unknown),
        ),
    ),
    Mutant(
        "snapshot and log read before the log is fenced", "snapshot-before-fence", 0,
        (
            (ChainReplay, "start", _snapshot_first), (ChainReplay, "_next_ledger", _replay_closed_ones),
            (ChainReplay, "_now_fenced", _fenced_last),
        ),
    ),
    # A tombstone alone would stop the zombie.
    Mutant(
        "first adds unchecked", "former-incarnation", 31,
        ((StorageNode, "_needs_check", _always(value=False)), (LedgerReviews, "erased", _erased_without_tombstone)),
    ),
    Mutant("trim to the newest snapshot", "unreadable-snapshot", 121, ((SnapshotWriter, "trim_bound", _newest_base),)),
    Mutant(
        "a log that begins with message 0 is whole", "unreadable-snapshot", 62_930,
        ((LogFold, "cannot_begin", _whole_from_message_0),),
    ),
    Mutant(
        "E retried after a conflict", "stale-record-after-conflict", 8,
        ((Ownership, "record_written", _retry_link), (Ownership, "record_read", _retry_read)),
    ),
    Mutant(
        "a block claim believed without its nonce", "block-claimed-twice", 2,
        ((IdClaim, "_shows", _believe_the_number),),
    ),
    Mutant("lost counter taken for a new one", "lost-counter", 36, ((IdClaim, "_read", _absent_is_new),)),
    Mutant(
        "accepted marks survive a failed write", "marks-of-a-failed-write", 2,
        ((TopicLog, "rollback", _forget_in_flight_only),),
    ),
    Mutant(
        "next ledger before the last is CLOSED", "", 1, ((ManagedLedger, "_close_when_drained", _closed_once_asked),)
    ),
    Mutant(
        "later batch accepted after a failed one", "marks-of-a-failed-write", 12,
        ((Sessions, "end_all", _always([])),),
    ),
    Mutant("content compared with its time", "other-content", 10, ((repeated_content, "checksum_as_of", _as_sent),)),
    Mutant(
        "a repeated batch is taken for the same", "other-content", 13,
        ((repeated_content, "content_differs", _always(value=False)),),
    ),
    Mutant("ids judged by range", "id-between-stored-ids", 0, ((dedup, "locate", _by_range),)),
    Mutant("a stale id condemns its batch", "id-between-stored-ids", 0, ((DedupTable, "_check_known", _condemned),)),
    Mutant("what was sent is called not stored", "endless-resend", 12, ((ProducerSession, "_end", _sure_of_nothing),)),
    Mutant("reader above last_add_confirmed", "", 28, rules=Rules(read_bound=_three_further)),
    Mutant("payload stored unchecked", "", 80, ((owner_server, "check_batch", _without_looking_inside),)),
    Mutant(
        "batches forgotten without a floor", "id-between-stored-ids", 0,
        ((ProducerState, "forget_all", _forget_without_floor),),
    ),
    Mutant("newest batch first", "", 0, ((Sessions, "receive", _newest_first),)),
    Mutant(
        "last_sequence_id from the accepted mark", "deposed-owner-refuses", 6,
        ((Openings, "_open", _open_at_once),),
    ),
    Mutant("skip_first left out", "", 1, ((TopicLog, "append_batch", _without_skip_first),)),
    Mutant("re-add answered from the page cache", "repeated-add-not-synced", 391, rules=Rules(sync_at_start=False)),
    Mutant(
        "a wiped node answers for its former self", "former-incarnation", 35,
        ((StorageServer, "read", _answers_for_all_reads), (StorageServer, "fence", _answers_for_all_fences)),
    ),
    Mutant(
        "a missing record taken for a deletion", "missing-record-is-no-deletion", 9,
        ((storage_server, "was_deleted", _always(value=True)),),
    ),
    Mutant(
        "ids of a trimmed entry are waited for", "missing-record-is-no-deletion", 1_907_936,
        ((Sessions, "_is_trimmed", _always(value=False)),),
    ),
    Mutant(
        "instance ids ignored", "", 3,
        ((opening_queue, "requester_of", _unnamed_instance), (OpeningRules, "holds", _always(value=False))),
    ),
    Mutant("granted again after the answer was lost", "", 8, ((OpeningRules, "holds", _always(value=False)),)),
    Mutant("withdrawn openings are granted", "", 2, ((Openings, "abandoned", _always(None)),)),
    Mutant("names are free right after a takeover", "", 3, ((ReconnectGrace, "awaits", _always(value=False)),)),
    Mutant("snapshot without instances", "", 0, ((dedup_producers, "encode_record", _without_instance),)),
    Mutant("recovery without writing back", "", 17, ((recovery_range.RecoveryRange, "entries", _always(())),)),
    Mutant(
        "question answered without a proof", "deposed-owner-refuses", 75,
        ((ownership_proof, "assess", _always(OwnershipProof.PROVED)),),
    ),
    Mutant(
        "route never refreshed", "deposed-owner-refuses", 1,
        ((Questioner, "_forget_route", _always(None)), (Questioner, "_is_of_the_past", _always(value=False))),
    ),
    Mutant(
        "epoch of an answer not compared", "deposed-owner-refuses", 6,
        ((OwnerEpochs, "believe", OwnerEpochs.learn),),
    ),
    Mutant("takeover waits for its snapshot without a timeout", "", 11, ((Takeover, "_timer_fired", _always([])),)),
    Mutant("given-up epoch taken again", "deposed-owner-refuses", 47, ((Ownership, "gave_up", _always(None)),)),
    Mutant(
        # Only a trim of ledgers without messages beside one of the ack log finds it, as in few runs of thousands.
        "trim of the ack log taken for the log's", "oversized-ledger-list", None,
        ((TopicRetention, "trimmed", at_any_trim),),
        core_test=test_trim_of_another_list_does_not_end_that_of_the_log,
    ),
    Mutant(
        # In no run a process of a former era creates a topic.
        "topic that was left out returns", "left-out-ledger-returns", None, ((_TopicJoin, "_is_known", True),),
        core_test=test_story, core_arguments=("names: A topic that was left out does not take its name back",),
    ),
    *(Mutant(*each) for each in (*REPAIR_MUTANTS, *ACK_MUTANTS, *PAGE_MUTANTS, *PAST_MUTANTS, *EFFECT_MUTANTS)),
    *(Mutant(*each) for each in (*LEASE_MUTANTS, *RESTORE_MUTANTS)),
    *CONSUMER_MUTANTS,
    *GATEWAY_MUTANTS,
    *EXPIRED_MUTANTS,
)  # fmt: skip
