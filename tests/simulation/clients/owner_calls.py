"""How a producer session reaches the owners of its topic over the simulated network: look-ups, streams, timers."""

from collections.abc import Callable

from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.core.formats.batch import Checksum, decode_batch
from oncelog.core.formats.opening import Granted, ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import Incarnation, OwnerEpoch, SessionNumber, TopicId
from oncelog.core.sdk.owner_attempts import (
    LookUp,
    LookUpFailed,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
)
from oncelog.core.sdk.producer.events import (
    BatchesAnswered,
    HoldName,
    NameIsWanted,
    ProducerEffect,
    ProducerEvent,
    SessionClosedByOwner,
)
from oncelog.core.sdk.producer.opening import CloseSession, OpenProducer, OpenRefused, ProducerGranted, WithdrawOpening
from oncelog.core.sdk.producer.pending_batches import SendBatches
from oncelog.core.topic_events.effects import AnswerOpen
from oncelog.core.topic_events.events import ReceivedBatch
from tests.simulation.network import Network, Stream
from tests.simulation.servers.metadata.metadata_server import MetadataServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.world import Process


class OwnerCalls:
    """Of one session core in one process."""

    def __init__(
        self,
        process: Process,
        network: Network,
        metadata: list[MetadataServer],
        checksum: Checksum,
        topic_id: TopicId,
        handle: Callable[[ProducerEvent], None],
    ) -> None:
        """metadata: one of them is drawn for each look-up. handle: takes the events of the core."""
        self.process, self.network, self.metadata = process, network, metadata
        self.checksum, self.topic_id, self.handle = checksum, topic_id, handle
        self.link: Link | None = None
        #: of this life; a grant may still be on its way on an earlier one
        self.links: list[Link] = []

    def sever(self) -> None:
        """The process has crashed."""
        links, self.links = self.links, []
        for link in links:
            link.stream.sever(at_once=link is not self.link)

    def perform(self, effect: ProducerEffect) -> None:
        process = self.process
        match effect:
            case LookUp(attempt, _, owner_epoch):
                self._look_up(attempt, owner_epoch)
            case OpenProducer():
                self._open(effect)
            case SendBatches():
                self._send(effect)
            case WithdrawOpening(attempt):
                self._withdraw(attempt)
            case CloseSession(_, session, keeps_name):
                self._end_session(session, keeps_name=keeps_name)
            case HoldName(attempt, session):
                self._hold_name(attempt, session)
            case StartSessionTimer(key, after_ms, jitter):
                delay = process.world.rng.randint(after_ms // 2, after_ms) if jitter else after_ms
                process.post(delay, f"timer {key.kind.value}", lambda: self.handle(SessionTimerFired(key)))
            case _:
                raise AssertionError(f"no owner is asked for {effect}")

    def _look_up(self, attempt: int, owner_epoch: OwnerEpoch) -> None:
        network, metadata = self.network, self.process.world.rng.choice(self.metadata)
        process, life = self.process, self.process.life

        def reply(event: OwnerFound | LookUpFailed, link: "Link | None") -> None:
            def arrive() -> None:
                if link is not None:
                    self.link = link
                    self.links = [each for each in self.links if each.stream.open] + [link]
                self.handle(event)

            if process.life == life:
                network.send(metadata.name, process, "looked up", arrive)

        def found(owner: OwnerServer, incarnation: Incarnation, epoch: OwnerEpoch) -> None:
            if process.life != life or not owner.alive or owner.incarnation != incarnation:
                reply(LookUpFailed(attempt, ServiceUnavailable("the owner is not reached")), None)
            else:
                reply(OwnerFound(attempt, epoch), Link(self, owner, attempt))

        def failed(error: OncelogError) -> None:
            reply(LookUpFailed(attempt, error), None)

        if not metadata.alive:
            process.post(2, "look-up refused", lambda: self.handle(LookUpFailed(attempt, ServiceUnavailable("down"))))
            return
        network.send(
            process.name, metadata, "look-up", lambda: metadata.look_up(self.topic_id, owner_epoch, found, failed)
        )

    def _open(self, effect: OpenProducer) -> None:
        link = self.link
        if link is None or link.attempt != effect.attempt:
            return
        opening = ProducerOpening(
            effect.attempt, effect.name, effect.mode, effect.on_conflict, effect.resume, effect.present,
            effect.owner_epoch, effect.instance_id, client=effect.client,
        )  # fmt: skip
        link.stream.send(self.process, "opens", lambda: link.owner.open(link, self.topic_id, opening))

    def _withdraw(self, attempt: int) -> None:
        link = self.link
        if link is not None and link.attempt == attempt:
            self.process.world.count("opening withdrawn")
            link.stream.send(self.process, "withdraws", lambda: link.owner.withdraw(link, self.topic_id, attempt))

    def _send(self, effect: SendBatches) -> None:
        link = self.link
        if link is None or link.attempt != effect.attempt:
            return
        batches = [ReceivedBatch(request, decode_batch(data, self.checksum), data) for request, data in effect.batches]
        session = effect.session
        link.stream.send(self.process, f"sends {session}", lambda: link.owner.receive(self.topic_id, session, batches))

    def _end_session(self, session: SessionNumber, *, keeps_name: bool) -> None:
        link = self.link
        if link is not None:
            link.stream.send(
                self.process,
                "ends a session",
                lambda: link.owner.close_session(self.topic_id, session, keeps_name=keeps_name),
            )

    def _hold_name(self, attempt: int, session: SessionNumber) -> None:
        link = self.link
        if link is not None and link.attempt == attempt:
            link.stream.send(self.process, "holds its name", lambda: link.owner.hold_name(self.topic_id, session))


class Link:
    """A client's stream to an owner, for one attempt."""

    def __init__(self, calls: OwnerCalls, owner: OwnerServer, attempt: int) -> None:
        self.calls = calls
        self.owner = owner
        self.attempt = attempt
        self.stream = Stream(calls.network, calls.process, owner)
        self.stream.on_broken[calls.process.name] = lambda: calls.handle(StreamLost(attempt))
        self.stream.on_broken[owner.name] = lambda: owner.link_broken(self)

    def _report(self, label: str, event: ProducerEvent) -> None:
        self.stream.send(self.owner, label, lambda: self.calls.handle(event))

    def opened(self, answer: AnswerOpen, owner_epoch: OwnerEpoch) -> None:
        result = answer.result
        if isinstance(result, Granted):
            pid, generation = result.instance
            self._report(
                f"granted {result.session}",
                ProducerGranted(
                    self.attempt, result.session, result.name, pid, generation, result.last_sequence_id, result.final,
                    owner_epoch, for_client=result.for_client,
                ),
            )  # fmt: skip
        else:
            assert isinstance(result, OncelogError)
            self._report(f"refused {result.code}", OpenRefused(self.attempt, result, owner_epoch))

    def answered(
        self, session: SessionNumber, answers: list[tuple[int, Outcome | OncelogError]], owner_epoch: OwnerEpoch
    ) -> None:
        self._report(f"answered {session}", BatchesAnswered(session, answers, owner_epoch))

    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None:
        self._report(f"ended {session} {error.code}", SessionClosedByOwner(session, error, owner_epoch))

    def wanted(self, session: SessionNumber) -> None:
        self._report(f"wants the name of {session}", NameIsWanted(session))
