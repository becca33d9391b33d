"""A client's process with one producer: the application, the producer's core, and its stream to an owner.

The application has an input: ids and values in order. It sends the input from the beginning, or from behind the last
sequence id that it is told, in batches of its own choosing; when it crashes, it does so again. What it hands over and
what it is told goes into the history.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oncelog.core.errors import (
    OncelogError,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    StaleSequence,
    TopicNotFound,
)
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.columns import encode_keys, encode_values
from oncelog.core.formats.entry import GIVEN_UP_GENERATIONS, SequenceMode
from oncelog.core.formats.opening import OnConflict
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import INSTANCE_ID_BYTES, InstanceId, SequenceId, TopicId
from oncelog.core.sdk.owner_attempts import (
    FailSession,
    OpeningPhase,
    OpenWanted,
    SessionTimerFired,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import (
    Complete,
    Fail,
    ProducerEvent,
    ReportOpen,
)
from oncelog.core.sdk.producer.opening import (
    ProducerGranted,
    ProducerSettings,
)
from oncelog.core.sdk.producer.pending_batches import BatchReady
from oncelog.core.sdk.producer.sequence_ids import pack_sequence_ids
from oncelog.core.sdk.producer.session import ProducerSession, ProducerSessionState
from oncelog.verify.violation import Violation
from tests.oracles.history import History
from tests.oracles.leases import LeaseHistory
from tests.simulation.clients.owner_calls import Link, OwnerCalls
from tests.simulation.consumers.messages import keys_of
from tests.simulation.network import Network
from tests.simulation.servers.metadata.metadata_server import MetadataServer
from tests.simulation.world import Process, World

_OTHER_DIGITS = bytes.maketrans(b"0123456789", b"abcdefghij")


@dataclass(slots=True)
class Input:
    """The input that one producer name stores. name None: every life gets a new name and begins again.

    on_conflict: what it does to another instance. places: at how many places it is fed.
    holes: ids that the input never has, between those it has; a careless application sends one now and then.
    changes: each life of an application sends other values under the ids.
    """

    name: str | None
    mode: SequenceMode
    ids: Sequence[int]
    automatic: bool = False
    resumes: bool = False
    careless: float = 0.0
    holes: Sequence[int] = ()
    on_conflict: OnConflict = OnConflict.FENCE
    places: int = 1
    changes: bool = False
    #: some life of some application has an answer for the whole input
    complete: bool = False

    def value(self, sequence_id: int, life: int) -> bytes:
        value = f"{sequence_id}".encode()
        # Of the same size: faults that depend on sizes stay the same.
        return value.translate(_OTHER_DIGITS) if self.changes and life % 2 else value


@dataclass(frozen=True, slots=True)
class ClientParts:
    world: World
    network: Network
    history: History
    checksum: Checksum
    #: asked in turn
    metadata: list[MetadataServer]
    #: ticks between two batches
    pace: tuple[int, int]
    session_class: type[ProducerSession] = ProducerSession
    open_results_max: int = 8
    #: messages have keys
    keyed: bool = False
    #: None: no producer of this run expires
    leases: LeaseHistory | None = None


@dataclass(slots=True)
class AnswerProgress:
    """One life of the application. unanswered: {request: ids}. failures: lives that ended fenced."""

    next: int = 0
    request: int = 0
    unanswered: dict[int, list[int]] = field(default_factory=dict)
    instance: int = -1
    retired: bool = False
    fenced: int = 0


class ProducerClient(Process):
    """One place for a producer."""

    def __init__(self, parts: ClientParts, name: str, topic_id: TopicId, source: Input) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.topic_id = topic_id
        self.source = source
        #: made so far, one for each life of the application
        self.instances = 0
        self.core = self._new_core()
        self.calls = OwnerCalls(self, parts.network, parts.metadata, parts.checksum, topic_id, self.handle)
        self.app = AnswerProgress()

    def _new_core(self) -> ProducerSession:
        self.instances += 1
        instance_id = InstanceId(f"{self.name}/{self.instances}".encode().ljust(INSTANCE_ID_BYTES, b"."))
        return self.parts.session_class(self._settings(), self.parts.checksum, instance_id)

    def _settings(self) -> ProducerSettings:
        source = self.source
        return ProducerSettings(
            name=source.name, mode=source.mode, on_conflict=source.on_conflict, answer_timeout_ms=900
        )

    @property
    def link(self) -> Link | None:
        """The newest stream to an owner."""
        return self.calls.link

    @property
    def done(self) -> bool:
        return self.app.next >= len(self.source.ids) and not self.app.unanswered

    # --- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        self.core = self._new_core()
        self.calls.link = None
        self.app = AnswerProgress(request=self.app.request, fenced=self.app.fenced)
        self._begin()

    def _begin(self) -> None:
        self.handle(OpenWanted())

    def crash(self) -> None:
        super().crash()
        self.calls.sever()

    def handle(self, event: ProducerEvent) -> None:
        effects = self.core.handle(event)
        if isinstance(event, ProducerGranted):
            self._became_new(event.last_sequence_id)
        for effect in effects:
            match effect:
                case ReportOpen(name, last):
                    self._opened(name, last)
                case Complete(request, _, outcome):
                    self._answered(request, outcome)
                case Fail(request, error, stored):
                    self._answered(request, error.of_send(stored))
                case FailSession(error):
                    self._failed(error)
                case _:
                    self.calls.perform(effect)
            if self.burn():
                return
        self.core.check_invariants()

    # --- the application ----------------------------------------------------------------------------------------------

    def _opened(self, name: str, last: SequenceId) -> None:
        source, app = self.source, self.app
        instance = self.core.opening.instance
        assert instance is not None
        app.instance = self.parts.history.opened(name, instance, last, dense=source.mode is SequenceMode.CONTIGUOUS)
        if source.resumes or source.automatic:
            app.next = sum(1 for i in source.ids if i <= last)
            source.complete = source.complete or self.done
        self.post(self.world.rng.randint(1, 20), "application", self._pump)

    def _became_new(self, last: SequenceId) -> None:
        """After it had expired with nothing sent, the core went on as a new producer: what waits is the new one's."""
        app, core, history = self.app, self.core, self.parts.history
        now, name = core.opening.instance, core.opening.name
        if app.instance < 0 or now is None or name is None:
            return
        before = history.opens[app.instance]
        if now.producer_id == before.instance.producer_id:
            return
        self.world.count("expired producer went on as a new one")
        app.instance = history.opened(name, now, last, dense=before.dense)
        for request, ids in app.unanswered.items():
            history.invoked(app.instance, request, ids, [self.source.value(i, self.instances) for i in ids])

    def _pump(self) -> None:
        if self.core.state in (ProducerSessionState.FAILED, ProducerSessionState.CLOSED) or self.app.next >= len(
            self.source.ids
        ):
            return
        self.post(self.world.rng.randint(*self.parts.pace), "application", self._pump)
        if len(self.app.unanswered) >= self.parts.open_results_max:
            return
        app, source, rng = self.app, self.source, self.world.rng
        if app.next and self.world.chance(source.careless):
            stale = [i for i in source.holes if i < source.ids[app.next - 1]]
            if stale:
                self._hand_over(self._careless_ids(stale[-6:]))
                return
        # Boundaries differ between lives: a batch may straddle what was stored before.
        count = rng.randint(1, 4)
        ids = list(source.ids[app.next : app.next + count])
        app.next += len(ids)
        self._hand_over(ids)

    def _careless_ids(self, stale: list[int]) -> list[int]:
        """Send one stale id, or several in one batch with ids that were sent before and new ones."""
        app, source, rng = self.app, self.source, self.world.rng
        if rng.random() < 0.3:
            self.world.count("stale id sent")
            return [rng.choice(stale)]
        self.world.count("stale ids among others sent")
        before = source.ids[max(0, app.next - 9) : app.next]
        new = source.ids[app.next : app.next + rng.randint(0, 2)]
        app.next += len(new)
        late = rng.sample(stale, rng.randint(1, min(3, len(stale))))
        known = rng.sample(before, rng.randint(0, min(3, len(before))))
        return sorted([*late, *known, *new])

    def _hand_over(self, ids: list[int]) -> None:
        app, source = self.app, self.source
        app.request += 1
        values = [source.value(i, self.instances) for i in ids]
        app.unanswered[app.request] = ids
        self.parts.history.invoked(app.instance, app.request, ids, values)
        packed = None if source.automatic else pack_sequence_ids(ids)
        payload = encode_values(values) + (encode_keys(keys_of(ids)) if self.parts.keyed else b"")
        self.handle(BatchReady(app.request, payload, len(ids), packed, self.world.now))

    def _answered(self, request: int, result: Outcome | OncelogError) -> None:
        del self.app.unanswered[request]
        self.parts.history.answered(self.app.instance, request, result)
        if isinstance(result, OncelogError):
            self.world.count(f"answer {result.code}")
        else:
            for part in result:
                self.world.count(f"answer {part.kind.name}{'' if part.position else ' at unknown position'}")
                if part.content_differs is not None:
                    self.world.count(f"content {'differs' if part.content_differs else 'is the same'}")
        if self.done and (not isinstance(result, OncelogError) or isinstance(result, StaleSequence)):
            self.source.complete = True

    def _failed(self, error: OncelogError) -> None:
        """Fenced: another instance has the name. This one may take it back a few times. A deleted topic is final."""
        self.world.count(f"producer failed: {error.code}")
        self.app.retired = True
        # A second instance runs at another place. An earlier one of this place may still be connected; it fences none.
        told = ProducerFenced if self.instances > 1 else ProducerFenced | ProducerBusy
        if self.source.places == 1 and isinstance(error, told) and not self._lost_to_a_restore(error):
            raise Violation("lone instances", f"{self.name} is the only instance and got: {error}")
        if isinstance(error, ProducerBusy):
            self.post(self.world.rng.randint(50, 800), "asks for its name again", self._again)
            return
        if isinstance(error, ProducerExpired) and self.parts.leases is not None:
            self._expired()
            return
        store = self.parts.metadata[0].parts.store.newest
        if isinstance(error, TopicNotFound) and store.get(f"topics/{self.topic_id}")[0] is None:
            return
        if not isinstance(error, ProducerFenced):
            raise AssertionError(f"a producer failed with {error.code}: {error}")
        self.app.fenced += 1
        if self.app.fenced <= 2:
            self.post(self.world.rng.randint(50, 800), "takes its name back", self._again)

    def _lost_to_a_restore(self, error: OncelogError) -> bool:
        """Whether it must open again, because what it was told may be lost."""
        instance, current = self.core.opening.instance, error.details.get("current")
        if instance is None or not isinstance(current, int):
            return False
        return current - instance.generation >= GIVEN_UP_GENERATIONS and "given up" in error.message

    def _expired(self) -> None:
        """What it has sent cannot be checked any more: the application begins its input again, as a new producer."""
        instance, history = self.core.opening.instance, self.parts.leases
        if instance is not None and history is not None:
            history.told_expired(instance.producer_id, self.world.now)
        self.post(self.world.rng.randint(50, 800), "begins again", self._again)

    def _again(self) -> None:
        self.crash()
        self.start()

    def lose_patience(self) -> None:
        """The opening got no answer in time."""
        opening = self.core.opening
        if self.alive and not self.paused and opening.phase is OpeningPhase.ASKING:
            self.world.count("opening asked again")
            self.handle(SessionTimerFired(TimerKey(TimerKind.OPEN, opening.attempt)))
