"""A program that publishes under leases of producer ids, as a copier does.

It saves the lease that it has. Each life of it leases the saved id again, which fences the life before; renews the
lease now and then; and, once its id has expired, leases a new one and begins its input again. A second program may run
with the same saved lease by mistake.
"""

import random
from dataclasses import dataclass, replace

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.errors import OncelogError, ProducerExpired, ProducerFenced
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Lease, Leased, ProducerInstance, ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import INSTANCE_ID_BYTES, Incarnation, InstanceId, OwnerEpoch, SequenceId, SessionNumber, TopicId
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes
from oncelog.core.sdk.owner_attempts import OpenWanted
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.core.topic_events.effects import AnswerOpen
from oncelog.verify.violation import Violation
from tests.simulation.clients.producer_client import ClientParts, Input, ProducerClient
from tests.simulation.network import Stream
from tests.simulation.servers.owners.owner_server import OwnerServer

#: A request without an answer is asked again.
PATIENCE_TICKS = 500


@dataclass(frozen=True, slots=True)
class LeaseShape:
    """Of a run with leases. programs: at how many places each input is fed. lifetimes_ms: of leases. policy: lifetimes
    of the other producers."""

    programs: tuple[int, ...]
    lifetimes_ms: tuple[int, ...]
    policy: ProducerLifetimes


@dataclass(slots=True)
class SavedLease:
    """What the programs of one input have on disk."""

    instance: ProducerInstance | None = None


def draw_lease_shape(seed: int) -> LeaseShape:
    """Two inputs of a topic; a third of them is fed at two places."""
    rng = random.Random(f"{seed}/lease shape")
    lifetimes_ms = rng.choice(((300,), (800, 2_000), (300, 1_200), (6_000, 300)))
    policy = ProducerLifetimes(assigned_ms=rng.choice((0, 1_500)), chosen_ms=rng.choice((0, 0, 1_200)))
    return LeaseShape(tuple(rng.choice((1, 1, 2)) for _ in range(2)), lifetimes_ms, policy)


def lease_programs(parts: ClientParts, name: str, topic_id: TopicId, shape: LeaseShape) -> list["LeaseClient"]:
    programs: list[LeaseClient] = []
    for places in shape.programs:
        count = parts.world.rng.randint(40, 90)
        source = Input(None, SequenceMode.CONTIGUOUS, range(count), automatic=True, resumes=True, places=places)
        saved = SavedLease()
        for _ in range(places):
            programs.append(LeaseClient(parts, f"{name}{len(programs)}", topic_id, saved, source, shape))
    return programs


class LeaseClient(ProducerClient):
    """One place for such a program."""

    def __init__(
        self, parts: ClientParts, name: str, topic_id: TopicId, saved: SavedLease, source: Input, shape: LeaseShape
    ) -> None:
        self.leased: Leased | None = None
        super().__init__(parts, name, topic_id, source)
        self.saved = saved
        self.shape = shape
        self.epochs = OwnerEpochs()
        self.requests = 0
        self._asking: list[LeaseRequest] = []

    @property
    def lifetime_ms(self) -> int:
        return self.world.rng.choice(self.shape.lifetimes_ms)

    def _settings(self) -> ProducerSettings:
        settings, leased = super()._settings(), self.leased
        if leased is None:
            return settings
        return replace(settings, lease=leased.instance, initial_sequence_id=leased.last_sequence_id)

    def crash(self) -> None:
        super().crash()
        for request in self._asking:
            request.withdraw()
        self._asking.clear()

    # --- a life -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.leased = None
        instance = self.saved.instance
        self._ask(Lease(None if instance is None else instance.producer_id, None, self.lifetime_ms))

    def _ask(self, wanted: Lease) -> None:
        self._asking.append(LeaseRequest(self, wanted))

    def answered_lease(self, request: "LeaseRequest", result: Leased | OncelogError) -> None:
        self._asking.remove(request)
        wanted, history = request.wanted, self.parts.leases
        assert history is not None
        if isinstance(result, Leased):
            history.leased(request.request_id, wanted, result)
            self.world.count(f"leased {request.kind}")
            if wanted.generation is None:
                self.saved.instance, self.leased = result.instance, result
                self.core = self._new_core()
                self.handle(OpenWanted())
                self._renew_later()
        else:
            self.world.count(f"lease {request.kind} refused: {result.code}")
            if isinstance(result, ProducerExpired):
                assert wanted.producer_id is not None
                history.told_expired(wanted.producer_id, self.world.now)
                if wanted.generation is None:
                    self._forget(wanted.producer_id)
                    self._begin()
            elif not isinstance(result, ProducerFenced) or wanted.generation is None:
                raise AssertionError(f"a lease was refused: {result.code}: {result}")
            elif self.source.places == 1:
                raise Violation("lone instances", f"{self.name} is the only instance and got: {result}")

    def _forget(self, pid: int) -> None:
        if self.saved.instance is not None and self.saved.instance.producer_id == pid:
            self.saved.instance = None

    def _renew_later(self) -> None:
        self.post(self.world.rng.randint(50, 900), "renews its lease", self._renew)

    def _renew(self) -> None:
        if self.leased is None or self.app.retired:
            return
        if not self._asking:
            lifetime_ms = self.world.rng.choice((0, self.lifetime_ms))
            self._ask(Lease(*self.leased.instance, lifetime_ms))
        self._renew_later()

    def _opened(self, name: str, last: SequenceId) -> None:
        """The session goes on as the leased instance, and the lease has told what is stored."""
        assert self.leased is not None
        super()._opened(name, self.leased.last_sequence_id)

    def _expired(self) -> None:
        if self.leased is not None:
            self._forget(self.leased.instance.producer_id)
        super()._expired()


class LeaseRequest:
    """One request for a lease, asked again under its id until it has an answer."""

    def __init__(self, client: LeaseClient, wanted: Lease) -> None:
        client.requests += 1
        self.client = client
        self.wanted = wanted
        self.request_id = InstanceId(f"{client.name}?{client.requests}".encode().ljust(INSTANCE_ID_BYTES, b"."))
        self.attempt = 0
        self.stream: Stream | None = None
        self._ask()

    @property
    def kind(self) -> str:
        if self.wanted.producer_id is None:
            return "anew"
        return "again" if self.wanted.generation is None else "renewed"

    def withdraw(self) -> None:
        """What is on its way counts no more."""
        self.attempt += 1
        if self.stream is not None:
            self.stream.sever(at_once=True)

    def _ask(self) -> None:
        client = self.client
        self.withdraw()
        attempt, parts = self.attempt, client.parts
        metadata = client.world.rng.choice(parts.metadata)
        client.post(PATIENCE_TICKS, "asks for a lease again", lambda: self._again(attempt))

        def found(owner: OwnerServer, incarnation: Incarnation, epoch: OwnerEpoch) -> None:
            if owner.alive and owner.incarnation == incarnation:
                parts.network.send(metadata.name, client, "looked up", lambda: self._send(attempt, owner, epoch))

        if metadata.alive:
            seen = client.epochs.highest(client.topic_id)
            look_up = lambda: metadata.look_up(client.topic_id, seen, found, lambda _: None)  # noqa: E731
            parts.network.send(client.name, metadata, "look-up", look_up)

    def _again(self, attempt: int) -> None:
        if attempt == self.attempt:
            self.client.world.count("lease asked for again")
            self._ask()

    def _send(self, attempt: int, owner: OwnerServer, epoch: OwnerEpoch) -> None:
        if attempt != self.attempt or (self.stream is not None and self.stream.open):
            return
        client = self.client
        client.epochs.learn(client.topic_id, epoch)
        call = LeaseCall(self, owner, attempt)
        self.stream = call.stream
        opening = ProducerOpening(
            client.requests, None, SequenceMode.CONTIGUOUS, instance_id=self.request_id, lease=self.wanted,
            owner_epoch_seen=client.epochs.highest(client.topic_id),
        )  # fmt: skip
        call.stream.send(client, "asks for a lease", lambda: owner.open(call, client.topic_id, opening))

    def answered(self, attempt: int, result: Leased | OncelogError, epoch: OwnerEpoch) -> None:
        """An answer of an owner that is deposed, as far as this client knows, counts for nothing."""
        if attempt != self.attempt:
            return
        client = self.client
        try:
            client.epochs.believe(client.topic_id, epoch)
            if isinstance(result, OncelogError) and result.retriable:
                raise result
        except OncelogError:
            client.post(client.world.rng.randint(20, 100), "asks for a lease again", lambda: self._again(attempt))
        else:
            self.withdraw()
            client.answered_lease(self, result)


class LeaseCall:
    """One attempt, as the owner sees it."""

    def __init__(self, request: LeaseRequest, owner: OwnerServer, attempt: int) -> None:
        self.request = request
        self.owner = owner
        self.attempt = attempt
        client = request.client
        self.stream = Stream(client.parts.network, client, owner)
        self.stream.on_broken[client.name] = lambda: request._again(attempt)
        self.stream.on_broken[owner.name] = lambda: owner.link_broken(self)

    def opened(self, answer: AnswerOpen, owner_epoch: OwnerEpoch) -> None:
        result = answer.result
        assert isinstance(result, Leased | OncelogError)
        self.stream.send(
            self.owner, "answers a lease", lambda: self.request.answered(self.attempt, result, owner_epoch)
        )

    def answered(
        self, session: SessionNumber, answers: list[tuple[int, Outcome | OncelogError]], owner_epoch: OwnerEpoch
    ) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...
