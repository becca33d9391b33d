"""What the SDK gives a door for one client: a producer of packed batches. The core of the session decides; the rest is
done as by `oncelog.client.producing.packed_producer` and `oncelog_doors.log_client.client_producer`.

Clients of a run send the same content under the same ids, so nothing is read back to be compared.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from oncelog.client.producing.duplicates import ACCEPT_ALL
from oncelog.client.producing.packed_entries import PackedEntry
from oncelog.client.producing.pending_results import PendingResults
from oncelog.client.values.results import AnsweredRange, TopicPartition
from oncelog.core.errors import OncelogError, SessionSuperseded, StaleSequence
from oncelog.core.formats.client_token import decode_token, token_of
from oncelog.core.formats.opening import GatewayClient, OnConflict, ProducerInstance
from oncelog.core.ids import INSTANCE_ID_BYTES, InstanceId, SequenceId, TopicId
from oncelog.core.sdk.owner_attempts import CloseWanted, EpochSeen, FailSession, OpenWanted
from oncelog.core.sdk.producer.events import (
    ClientIsThere,
    Complete,
    Fail,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
    ReportWanted,
    SessionClosedByOwner,
)
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.core.sdk.producer.pending_batches import BatchReady
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog.verify.violation import Violation
from oncelog_doors.core.pulsar.openings import AskOwner
from oncelog_doors.core.pulsar.verdicts import Ids, Known, Rejected, TopicRules, Verdict, verdict_on
from oncelog_doors.log_client import known_batches
from tests.simulation.clients.owner_calls import OwnerCalls

if TYPE_CHECKING:
    from tests.simulation.doors.door import DoorServer

Decided = Callable[[Verdict | None], None]
_RULES = TopicRules()


class SessionUser(Protocol):
    """The slot of a door."""

    def granted(self, name: str, last: SequenceId, token: int, instance: ProducerInstance) -> None: ...
    def ended(self, error: OncelogError) -> None: ...
    def wanted(self) -> None: ...
    def room(self) -> None:
        """Another batch may have room now."""


class DoorSession:
    """One producer of the SDK at a door."""

    def __init__(
        self, door: "DoorServer", topic_id: TopicId, name: str, ask: AskOwner, user: SessionUser, number: int
    ) -> None:
        parts = door.parts
        client = GatewayClient(ask.epoch, decode_token(ask.token) if ask.token else None)
        settings = ProducerSettings(name=name, on_conflict=OnConflict.REFUSE, answer_timeout_ms=900, client=client)
        instance_id = InstanceId(f"{door.name}/{number}".encode().ljust(INSTANCE_ID_BYTES, b"."))
        self.door, self.topic_id, self.user = door, topic_id, user
        self.core = parts.session_class(settings, parts.checksum, instance_id)
        self.calls = OwnerCalls(door, parts.network, parts.metadata, parts.checksum, topic_id, self.handle)
        self._results = PendingResults(name, ACCEPT_ALL)
        self._results.unverified_count = 1  # so that it logs nothing
        self._is_open = False
        self._superseded = False

    def begin(self) -> None:
        self.handle(OpenWanted())

    def handle(self, event: ProducerEvent) -> None:
        # As `SessionDriver.feed`: what another session of this door has seen counts before any answer is handled.
        seen = self.door.epochs.highest(self.topic_id)
        if seen > self.core.opening.owner_epoch and not self._perform(self.core.handle(EpochSeen(seen))):
            return
        if isinstance(event, SessionClosedByOwner) and isinstance(event.error, SessionSuperseded):
            self._check_superseded(event)
        if not self._perform(self.core.handle(event)):
            return
        self.door.epochs.learn(self.topic_id, self.core.opening.owner_epoch)
        self.core.check_invariants()
        self.user.room()

    def _perform(self, effects: Iterable[ProducerEffect]) -> bool:
        """False: the door has crashed between two of them."""
        for effect in effects:
            match effect:
                case ReportOpen(name, last, _):
                    instance = self.core.opening.instance
                    assert instance is not None
                    self._is_open = True
                    self.user.granted(name, last, token_of(self.topic_id, instance), instance)
                case ReportWanted():
                    if self._is_open:
                        self.user.wanted()
                    else:
                        self.client_lives()
                case Complete():
                    self._results.complete(effect, TopicPartition(self.topic_id, 0), self.core.opening.name or "")
                case Fail(request, error, stored):
                    self._results.fail(request, error.of_send(stored))
                case FailSession(error):
                    # After the results of this step, as a task of the door hears of it.
                    self.door.post(0, "hears of an end", lambda e=error: self.user.ended(e))  # type: ignore[misc]
                case _:
                    self.calls.perform(effect)
            if self.door.burn():
                return False
        return True

    def _check_superseded(self, event: SessionClosedByOwner) -> None:
        """It is final (hazard sessions-end-each-other), unless the door has left that session before it hears so."""
        if event.session != self.core.session:
            return
        self.door.world.count("session superseded")
        if self._superseded:
            raise Violation("superseded sessions", f"{self.door.name} opens a superseded session again")
        self._superseded = True

    # --- what the slot does -------------------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        pending = self.core.pending.bytes_total
        return self.core.error is None and (not pending or pending + size <= self.door.pending_bytes_max)

    def give(self, ids: Ids, entry: PackedEntry, decided: Decided) -> None:
        request = self._results.add(_Result(self, ids, decided))
        self.handle(
            BatchReady(
                request, entry.payload, entry.count, entry.ids, entry.publish_time_ms,
                payload_format=entry.payload_format, unit=entry.unit,
            )
        )  # fmt: skip

    def client_lives(self) -> None:
        if self.core.error is None:
            self.handle(ClientIsThere())

    def close(self, *, gives_up_name: bool) -> None:
        if self.core.error is None:
            self.handle(CloseWanted(gives_up_name=gives_up_name))


class _Result:
    """Of one batch (PendingResult)."""

    def __init__(self, session: DoorSession, ids: Ids, decided: Decided) -> None:
        self._session, self._ids, self._decided = session, ids, decided

    def completed(self, _topic: TopicPartition, _ids: BatchIds, ranges: list[AnsweredRange]) -> None:
        known, place = known_batches.known_of(ranges)
        self._session.door.world.count(f"batch {known.name}")
        self._decided(verdict_on(known, self._ids, place, _RULES))

    def failed(self, error: OncelogError) -> None:
        if isinstance(error, StaleSequence):
            self._session.door.world.count("batch STALE")
            self._decided(verdict_on(Known.STALE, self._ids, None, _RULES))
        else:
            self._decided(None if self._session.core.error is not None else Rejected(str(error)))
