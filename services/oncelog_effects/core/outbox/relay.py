"""The relay of an outbox: from committed rows to messages, each once.

    Connected -> claim -> for each stream with numbered rows: open, compare, send
                   |
                   +----> look at rows -> open and compare their streams -> number -> send -> confirm
    Disconnected: everything that is known is void; each new connection begins at the claim

    crash after      what the next relay finds
    claim, open,     nothing has happened
    compare, look
    number           numbers are committed: it sends these rows
    send             the log has messages above `confirmed`: the comparison finds them by number and event id
    confirm          the rows are settled

Rules
- The claim is a lease: it decides who tries, never what is right. What is right is decided by the database, where each
  write names the claim, and by the log, where opening a producer fences the former one.
- What is numbered was committed before the look, in the order of the ids among what one look sees, so a row that is
  committed late is not passed over (hazard row-committed-behind-a-higher-number).
- Each connection to the database begins at the claim, and no stream gives numbers before it was compared: a restored
  database is never met half way (hazard numbers-given-twice-after-a-restore). `streams` has the comparison.
- Rows are confirmed by stream and number under the claim, never by their id (hazard row-id-given-anew).
- Nothing is concluded from an answer of the log that a number was stored before: the stream is opened and compared
  again (hazard duplicate-of-another-row).
- A topic or partition that cannot be used now is tried again later. Other topics go on, however many cannot be used,
  and so do other partitions, while what a look sees is not all of it rows that wait.
- A look leaves out topics as the rows name them, and one topic has several names: no row gets a number while a row that
  may belong to the same stream waits, or is left out, under any name (hazard row-passed-under-another-name).
- What contradicts the log ends the relay, if it still has the claim then: a relay that was stopped for longer than its
  lease compares the log with numbers that another one has gone beyond (hazard stale-relay-finds-a-contradiction).
"""

from collections.abc import Callable
from dataclasses import replace

from oncelog.core.errors import EffectsError, InvariantViolated, OncelogError
from oncelog.core.names import parse_topic, whole_topic
from oncelog.core.sdk.producer.routing import partition_of
from oncelog_effects.core.outbox import events
from oncelog_effects.core.outbox.rows import NumberedRow, RowHead, check_row, printable
from oncelog_effects.core.outbox.sending import SEND_ROWS_MAX, StreamStage, StreamState
from oncelog_effects.core.outbox.streams import check_end, check_found

LOOK_ROWS_MAX = 1_000
PRUNE_ROWS_MAX = 1_000
#: Long enough for a slow database, short enough for a pause in which a machine has failed.
LEASE_MS = 15_000
CLAIM_MS = 1_000
PRUNE_MS = 60_000
RETRY_MS = 2_000
#: So many renewals after which the numbers of partitions are looked up again.
_PARTITIONS_RENEWALS = 12


class OutboxRelay:
    """poll_ms_min, poll_ms_max: how long an idle relay waits before it looks at the rows again. keeps: rows stay in
    the table after they were stored, for a while. lease_ms: a relay that does not renew its claim for so long may be
    replaced."""

    def __init__(
        self,
        *,
        poll_ms_min: int = 50,
        poll_ms_max: int = 1_000,
        keeps: bool = False,
        lease_ms: int = LEASE_MS,
        send_rows_max: int = SEND_ROWS_MAX,
    ) -> None:
        self.send_rows_max = send_rows_max
        self.renew_ms = lease_ms // 3
        self.poll_ms_min = poll_ms_min
        self.poll_ms_max = poll_ms_max
        self.keeps = keeps
        #: of the connection; empty: there is none
        self.claim = ""
        #: whether the claim was granted
        self.active = False
        self.stopped = False
        #: between database and log; it counts if the claim is still this relay's
        self._contradiction: EffectsError | None = None
        #: {topic or partition: its stream}
        self.streams: dict[str, StreamState] = {}
        #: {topic: its number of partitions}; -1: asked
        self._partitions: dict[str, int] = {}
        #: {topic as the rows have it: its full name}, which the next look leaves out: they can take no row now
        self._held: dict[str, str] = {}
        #: full names of what the look under way leaves out
        self._left_out: frozenset[str] = frozenset()
        #: topics that can take rows again since the look under way has begun
        self._released: set[str] = set()
        #: {topic or partition: why it cannot be used now}; all are tried again at the same time
        self.troubles: dict[str, str] = {}
        self._looking = False
        self._retrying = False
        #: rows of the NumberRows under way, of each stream
        self._numbering: dict[str, list[NumberedRow]] = {}
        self._poll_ms = poll_ms_min
        self._renewals = 0
        self._handlers: dict[type[events.RelayEvent], Callable[..., list[events.RelayEffect]]] = {
            events.ClaimRefused: lambda _: [events.StartTimer(self.claim, events.TimerKind.CLAIM, CLAIM_MS)],
            events.OutboxClaimed: self._claimed,
            events.ClaimRenewed: self._renewed,
            events.PartitionsFound: self._partitions_found,
            events.StreamOpened: self._opened,
            events.StreamFailed: self._stream_failed,
            events.TopicFailed: self._topic_failed,
            events.StreamCreated: self._created,
            events.LogRead: self._log_read,
            events.RowsSeen: self._rows_seen,
            events.RowsNumbered: self._rows_numbered,
            events.RowsSent: self._rows_sent,
            events.RowsConfirmed: self._rows_confirmed,
            events.RowsPruned: self._rows_pruned,
            events.TimerFired: self._timer_fired,
        }

    def handle(self, event: events.RelayEvent) -> list[events.RelayEffect]:
        if self.stopped:
            return []
        if isinstance(event, events.Connected):
            return self._connected(event)
        if not self.claim or event.claim != self.claim:
            return []
        if isinstance(event, events.Disconnected):
            return self._forget()
        try:
            return self._handlers[type(event)](event)
        except EffectsError as error:
            self._contradiction = self._contradiction or error
            return [events.RenewClaim(self.claim)]

    # --- connection and claim -----------------------------------------------------------------------------------------

    def _connected(self, event: events.Connected) -> list[events.RelayEffect]:
        effects = self._forget()
        self.claim = event.claim
        return [*effects, events.ClaimOutbox(self.claim)]

    def _forget(self) -> list[events.RelayEffect]:
        known, self.claim, self.active, self._contradiction = self.claim, "", False, None
        self.streams.clear()
        self._partitions.clear()
        self._held.clear()
        self.troubles.clear()
        self._numbering.clear()
        self._looking = self._retrying = False
        return [events.CloseStreams()] if known else []

    def _claimed(self, event: events.OutboxClaimed) -> list[events.RelayEffect]:
        self.active, self._poll_ms = True, self.poll_ms_min
        effects: list[events.RelayEffect] = [events.StartTimer(self.claim, events.TimerKind.RENEW, self.renew_ms)]
        if self.keeps:
            effects.append(events.PruneRows(self.claim, PRUNE_ROWS_MAX))
        for stream in event.streams:
            state = StreamState(
                stream.topic, stream, event.numbered.get(stream.number, ()), rows_max=self.send_rows_max
            )
            self.streams[stream.topic] = state
            if state.numbered or stream.next_number > stream.confirmed + 1:
                effects += self._open(state)
        return [*effects, *self._look()]

    def _renewed(self, _: events.ClaimRenewed) -> list[events.RelayEffect]:
        if self._contradiction is not None:
            self.stopped = True
            return [events.CloseStreams(), events.Stop(self._contradiction)]
        self._renewals += 1
        if self._renewals % _PARTITIONS_RENEWALS == 0:
            self._partitions.clear()
        fenced = [state for state in self.streams.values() if state.stage is StreamStage.FENCED]
        return [effect for state in fenced for effect in self._open(state)]

    def _timer_fired(self, event: events.TimerFired) -> list[events.RelayEffect]:
        match event.kind:
            case events.TimerKind.CLAIM:
                return [events.ClaimOutbox(self.claim)]
            case events.TimerKind.RENEW:
                return [
                    events.RenewClaim(self.claim),
                    events.StartTimer(self.claim, events.TimerKind.RENEW, self.renew_ms),
                ]
            case events.TimerKind.PRUNE:
                return [events.PruneRows(self.claim, PRUNE_ROWS_MAX)]
            case events.TimerKind.POLL:
                return self._poll()
            case events.TimerKind.RETRY:
                return self._try_again()

    def _try_again(self) -> list[events.RelayEffect]:
        """Everything that has failed, at once."""
        self._retrying = False
        effects: list[events.RelayEffect] = []
        for name in self.troubles:
            if whole_topic(name) == name and name not in self._partitions:
                effects += self._find_partitions(name)
        for state in self.streams.values():
            if state.stage is StreamStage.FAILED:
                effects += self._open(state)
        return effects

    def _rows_pruned(self, event: events.RowsPruned) -> list[events.RelayEffect]:
        if event.count >= PRUNE_ROWS_MAX:
            return [events.PruneRows(self.claim, PRUNE_ROWS_MAX)]
        return [events.StartTimer(self.claim, events.TimerKind.PRUNE, PRUNE_MS)]

    # --- open and compare ---------------------------------------------------------------------------------------------

    def _open(self, state: StreamState) -> list[events.RelayEffect]:
        state.close(StreamStage.OPENING)
        state.attempt += 1
        return [events.OpenStream(self.claim, state.topic, state.attempt)]

    def _opened(self, event: events.StreamOpened) -> list[events.RelayEffect]:
        state = self.streams[event.topic]
        if state.stage is not StreamStage.OPENING or event.attempt != state.attempt:
            return []
        state.opened_at, state.value_bytes_max = event.last, event.value_bytes_max
        if state.stream is None:
            return [events.CreateStream(self.claim, event.topic, event.topic_id)]
        return self._compare(state, event.topic_id)

    def _created(self, event: events.StreamCreated) -> list[events.RelayEffect]:
        state = self.streams[event.stream.topic]
        state.stream = event.stream
        if state.stage is not StreamStage.OPENING:
            return []
        return self._compare(state, event.stream.topic_id)

    def _compare(self, state: StreamState, topic_id: str) -> list[events.RelayEffect]:
        """Raises what contradicts the log."""
        stream = state.stream
        assert stream is not None
        unconfirmed = [row for row in state.numbered if row.number > stream.confirmed]
        check_end(stream, unconfirmed, topic_id, state.opened_at, stored=state.stored)
        if state.opened_at == stream.confirmed:
            return self._go_on(state, stream.confirmed, "")
        state.stage = StreamStage.READING
        return [events.ReadLog(self.claim, state.topic, state.attempt, stream.confirmed_message, state.opened_at)]

    def _log_read(self, event: events.LogRead) -> list[events.RelayEffect]:
        state = self.streams[event.topic]
        if state.stage is not StreamStage.READING or event.attempt != state.attempt:
            return []
        stream, last = state.stream, state.opened_at
        assert stream is not None
        check_found(stream, tuple(state.numbered), event.found, last)
        message_id = next((each.message_id for each in event.found if each.number == last), "")
        return self._go_on(state, last, message_id)

    def _go_on(self, state: StreamState, stored: int, message_id: str) -> list[events.RelayEffect]:
        state.ready(stored, message_id)
        self.troubles.pop(state.topic, None)
        return [*state.to_confirm(self.claim), *state.to_send(self.claim), *self._release(state.topic)]

    def _stream_failed(self, event: events.StreamFailed) -> list[events.RelayEffect]:
        state = self.streams[event.topic]
        closed = (StreamStage.CLOSED, StreamStage.FAILED, StreamStage.FENCED)
        if state.stage in closed or event.attempt != state.attempt:
            return []
        if event.fenced:
            state.close(StreamStage.FENCED)
            return [events.RenewClaim(self.claim)]
        state.close(StreamStage.FAILED)
        self._partitions.pop(event.topic, None)  # it may have got partitions
        return self._retry(event.topic, event.error)

    def _topic_failed(self, event: events.TopicFailed) -> list[events.RelayEffect]:
        self._partitions.pop(event.topic, None)
        return self._retry(event.topic, event.error)

    def _retry(self, topic: str, error: OncelogError) -> list[events.RelayEffect]:
        self.troubles[topic] = str(error)
        if self._retrying:
            return []
        self._retrying = True
        return [events.StartTimer(self.claim, events.TimerKind.RETRY, RETRY_MS)]

    # --- look and number ----------------------------------------------------------------------------------------------

    def _release(self, topic: str) -> list[events.RelayEffect]:
        """The topic, or a partition of it, can take rows again."""
        topic = whole_topic(topic)
        self._released.add(topic)
        self._held = {name: full for name, full in self._held.items() if whole_topic(full) != topic}
        return self._look()

    def _poll(self) -> list[events.RelayEffect]:
        """A new row may be of a partition that takes rows. A topic that has failed is released when it can be used."""
        self._held = {
            name: full for name, full in self._held.items() if full in self.troubles and not self._partitions.get(full)
        }
        return self._look()

    def _look(self) -> list[events.RelayEffect]:
        if self._looking or not self.active:
            return []
        self._looking = True
        self._released.clear()
        self._left_out = frozenset(self._held.values())
        return [events.LookAtRows(self.claim, LOOK_ROWS_MAX, tuple(self._held))]

    def _rows_seen(self, event: events.RowsSeen) -> list[events.RelayEffect]:
        effects: list[events.RelayEffect] = []
        assigned: list[events.Assigned] = []
        refused: list[events.Refused] = []
        waiting = set(self._left_out)
        for row in event.rows:
            place = self._place_of(row, waiting, effects)
            if place is None:
                continue
            if isinstance(place, str):
                refused.append(events.Refused(row.id, printable(place)))
            else:
                state, size_bytes = place
                assert state.stream is not None
                rows = self._numbering.setdefault(state.topic, [])
                number = (rows[-1].number if rows else state.stream.next_number - 1) + 1
                rows.append(NumberedRow(number, row.event_id, size_bytes))
                assigned.append(events.Assigned(row.id, state.stream.number, number))
        if assigned or refused:
            return [*effects, events.NumberRows(self.claim, tuple(assigned), tuple(refused))]
        self._looking = False
        again = bool(event.rows or self._released)
        for name in dict.fromkeys(row.topic for row in event.rows):
            topic = parse_topic(name)
            if str(replace(topic, partition=None)) not in self._released:
                self._held[name] = str(topic)
        if again:
            return [*effects, *self._look()]  # without the topics of which every row waits
        effects.append(events.StartTimer(self.claim, events.TimerKind.POLL, self._poll_ms))
        self._poll_ms = min(2 * self._poll_ms, self.poll_ms_max)
        return effects

    def _place_of(
        self, row: RowHead, waiting: set[str], effects: list[events.RelayEffect]
    ) -> tuple[StreamState, int] | str | None:
        """The stream of the row, and its bytes; or why it can never be sent. None: it waits.

        waiting: topics and partitions of which an earlier row waits: then this one does, too. While a look is handled,
        no stream gets ready."""
        checked = check_row(row)
        if isinstance(checked, str):
            return checked
        topic, whole = checked.topic, str(replace(checked.topic, partition=None))
        if topic.partition is None:
            count = self._partitions.get(whole)
            if count is None and whole not in self.troubles:
                effects += self._find_partitions(whole)
            if count is None or count < 0 or whole in waiting:
                waiting.add(whole)
                return None
            if count:
                topic = replace(topic, partition=partition_of(checked.hashed, count))
        name = str(topic)
        state = self.streams.get(name)
        if state is None:
            state = self.streams[name] = StreamState(name, None, rows_max=self.send_rows_max)
        if state.stage is StreamStage.CLOSED:
            effects += self._open(state)
        if whole in waiting or name in waiting or state.stage is not StreamStage.READY or state.full:
            waiting.add(name)
            return None
        if row.size_bytes > state.value_bytes_max:
            return f"the value has {row.size_bytes} bytes, the limit of the topic is {state.value_bytes_max}"
        return state, checked.size_bytes

    def _rows_numbered(self, event: events.RowsNumbered) -> list[events.RelayEffect]:
        numbering, self._numbering = self._numbering, {}
        self._looking = False
        effects: list[events.RelayEffect] = []
        if event.written:
            self._poll_ms = self.poll_ms_min
            for topic, rows in numbering.items():
                state = self.streams[topic]
                state.number(rows)
                effects += state.to_send(self.claim)
        return [*effects, *self._look()]

    def _find_partitions(self, topic: str) -> list[events.RelayEffect]:
        self._partitions[topic] = -1
        return [events.FindPartitions(self.claim, topic)]

    def _partitions_found(self, event: events.PartitionsFound) -> list[events.RelayEffect]:
        self._partitions[event.topic] = event.count
        state = self.streams.get(event.topic)
        if state is not None and state.stage not in (StreamStage.CLOSED, StreamStage.READY):
            if not event.count or state.stream is not None:
                return []  # its rows go on when it is opened
            state.close(StreamStage.CLOSED)  # it has partitions now
        self.troubles.pop(event.topic, None)
        return self._release(event.topic)

    # --- send and confirm ---------------------------------------------------------------------------------------------

    def _rows_sent(self, event: events.RowsSent) -> list[events.RelayEffect]:
        state = self.streams[event.topic]
        if state.stage is not StreamStage.READY or event.attempt != state.attempt:
            return []
        if event.foreign:
            return self._open(state)
        if not state.answered(event.last, event.message_id):
            raise InvariantViolated(f"rows of {event.topic} up to {event.last} were answered out of order")
        return [*state.to_confirm(self.claim), *state.to_send(self.claim)]

    def _rows_confirmed(self, event: events.RowsConfirmed) -> list[events.RelayEffect]:
        state = self.streams[event.topic]
        was_full = state.full
        state.confirmed()
        effects: list[events.RelayEffect] = [*state.to_confirm(self.claim), *state.to_send(self.claim)]
        return [*effects, *self._release(event.topic)] if was_full and not state.full else effects
