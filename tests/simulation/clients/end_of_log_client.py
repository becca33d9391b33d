"""A client that asks how far a topic's log goes, by routes that may be old; its oracle knows what was acknowledged.

It asks as the SDK does: by a cached route until that fails, with the highest owner epoch that it has seen, and it
believes no answer of a lower one. An owner answers as the real one does: after a proof that it is the current one.

Oracles
- Linearizable answers: no answer is below what some producer had an acknowledgement for before the question began.
- After the commit of an era no owner of a former one answers.
- Epochs never go back: no answer is believed of an owner below one that this client has heard of.
- Once faults have stopped, questions are answered.

Chance and delays come from a separate generator, so that questions change no other run.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.chain import ownership_proof
from oncelog.core.chain.ownership_proof import OwnershipProof
from oncelog.core.era import Era, era_of
from oncelog.core.errors import NotOwner
from oncelog.core.ids import BEFORE_ALL, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.topic import Phase, open_ledger
from oncelog.core.topic_events.events import HigherEpochReported
from oncelog.verify.violation import Violation
from tests.oracles.history import History
from tests.simulation.servers.decoding import decode_topic
from tests.simulation.servers.metadata_server import MetadataParts
from tests.simulation.servers.owner_server import OwnerServer
from tests.simulation.servers.storage_server import StorageServer
from tests.simulation.servers.topic_shell import TopicShell
from tests.simulation.world import Process

ASK_TICKS = (20, 160)
#: A question without an answer is given up, and the route with it.
PATIENCE_TICKS = 400
#: Members that are silent for so long have the record asked.
FENCES_TICKS = 60
OPEN_QUESTIONS_MAX = 3
STALE_ROUTES = 0.3
#: How often another part of the client looks the topic up, while a question is on its way.
OTHER_LOOK_UPS = 0.2
Refuse = Callable[[], None]
Answer = Callable[[Position, OwnerEpoch], None]


@dataclass(slots=True)
class Question:
    """acked: the messages that were acknowledged to producers when the question began. first_epoch: the lowest of the
    era that the topic's record was of."""

    began: int
    acked: Position
    first_epoch: int
    open: bool = True


class Questioner(Process):
    """One client of one topic; it never crashes."""

    def __init__(
        self, parts: MetadataParts, nodes: dict[Incarnation, StorageServer], history: History, topic_id: TopicId
    ) -> None:
        super().__init__(parts.world, f"questioner{int(topic_id, 16)}")
        self.parts = parts
        self.nodes = nodes
        self.history = history
        self.topic_id = topic_id
        self.rng = random.Random(f"{parts.world.seed}/{self.name}")
        self.epochs = OwnerEpochs()
        #: (where, epoch), None: to be looked up; it is of an owner that was true once
        self.route: tuple[Incarnation, OwnerEpoch] | None = None
        self.open_questions: list[Question] = []
        #: when the newest question began that was answered
        self.answered_began = -1
        #: the highest epoch that it has heard of, as the oracle counts
        self.heard = OwnerEpoch(0)

    def start(self) -> None:
        super().start()
        self._later()

    def _later(self) -> None:
        self.post(self.rng.randint(*ASK_TICKS), "asks", self._ask)

    def _delay(self, source: str, target: str) -> int | None:
        """None: behind a network partition."""
        network = self.parts.network
        if network.cut(source, target):
            return None
        held = max(0, network.clogs.get((source, target), 0) - self.world.now)
        return held + self.rng.randint(1, network.faults.delay_max)

    def _send(self, source: str, target: Process, label: str, do: Callable[[], None]) -> None:
        delay = self._delay(source, target.name)
        if delay is not None:
            target.post(delay, label, do)

    # --- the client ---------------------------------------------------------------------------------------------------

    def _acked(self) -> Position:
        parts = [part for one in self.history.appends if isinstance(one.result, tuple) for part in one.result]
        return max((part.position for part in parts if part.position is not None), default=BEFORE_ALL)

    def _ask(self) -> None:
        self._later()
        for late in [one for one in self.open_questions if self.world.now - one.began > PATIENCE_TICKS]:
            self._failed(late)
        if len(self.open_questions) >= OPEN_QUESTIONS_MAX:
            return
        route = self._find()
        if route is None:
            return
        if self.rng.random() < OTHER_LOOK_UPS:
            self.post(self.rng.randint(1, 30), "looks up elsewhere", self._learn)
        data, _ = self.parts.store.newest.get(f"topics/{self.topic_id}")
        first_epoch = 0 if data is None else Era(era_of(decode_topic(data).owner_epoch), "").first_epoch
        question = Question(self.world.now, self._acked(), first_epoch)
        self.open_questions.append(question)
        owner, seen = self.parts.owners[route[0].split(".")[0]], self.epochs.highest(self.topic_id)

        def refuse() -> None:
            self._send(owner.name, self, "refused", lambda: self._failed(question))

        def answer(confirmed: Position, epoch: OwnerEpoch) -> None:
            self._send(owner.name, self, "answered", lambda: self._answered(question, confirmed, epoch))

        self._send(self.name, owner, "is asked", lambda: Asked(self, owner, seen, answer, refuse).begin())

    def _find(self) -> tuple[Incarnation, OwnerEpoch] | None:
        """The cached route, or one that some metadata service gives, which may be of the past."""
        known, seen = self.route, self.epochs.highest(self.topic_id)
        if known is None or self._is_of_the_past(known[1]):
            routes = [one for one in self.parts.placements.get(self.topic_id, ()) if one[1] >= seen]
            if not routes:
                return None
            past = routes[:-1] if self.rng.random() < STALE_ROUTES else []
            known = self.route = self.rng.choice(past) if past else routes[-1]
            self._hear(known[1])
            self.epochs.believe(self.topic_id, known[1])
        return known

    def _is_of_the_past(self, epoch: OwnerEpoch) -> bool:
        """A cached route of an epoch below the highest one seen is not used any more."""
        return epoch < self.epochs.highest(self.topic_id)

    def _learn(self) -> None:
        """Learn the newest epoch, as from a producer or another reader of this client."""
        newest = self.parts.placements[self.topic_id][-1][1]
        self._hear(newest)
        self.epochs.learn(self.topic_id, newest)

    def _hear(self, epoch: OwnerEpoch) -> None:
        self.heard = max(self.heard, epoch)

    def _failed(self, question: Question) -> None:
        if question.open:
            self._over(question)
            self._forget_route()

    def _forget_route(self) -> None:
        self.route = None

    def _over(self, question: Question) -> None:
        question.open = False
        self.open_questions.remove(question)

    def _answered(self, question: Question, confirmed: Position, epoch: OwnerEpoch) -> None:
        if not question.open:
            return
        try:
            self.epochs.believe(self.topic_id, epoch)
        except NotOwner:
            self.world.count("answer of a lower epoch refused")
            self._failed(question)
            return
        self._over(question)
        if epoch < self.heard:
            raise Violation(
                "epochs never go back", f"an answer of epoch {epoch} is believed, {self.heard} was heard of"
            )
        self._hear(epoch)
        if epoch < question.first_epoch:
            raise Violation("eras", f"epoch {epoch} answers, and owners of the era have {question.first_epoch} or more")
        if confirmed < question.acked:
            raise Violation(
                "linearizable answers",
                f"epoch {epoch} answers {confirmed}, {question.acked} was acknowledged before it was asked",
            )
        self.world.count("question answered")
        self.answered_began = max(self.answered_began, question.began)


class Asked:
    """One question at an owner: the shell's part of `topic_owner.ownership_proofs`."""

    def __init__(
        self, client: Questioner, owner: OwnerServer, seen: OwnerEpoch, answer: Answer, refuse: Refuse
    ) -> None:
        self.client = client
        self.owner = owner
        self.seen = seen
        self.over = False
        self._answer = answer
        self._refuse = refuse

    def begin(self) -> None:
        shell = self.owner.topics.get(self.client.topic_id)
        if shell is None or shell.core.phase is not Phase.SERVING:
            self._refuse()
        elif self.seen > shell.epoch:
            self.owner.world.count("question shows a higher epoch")
            self._read_record(shell, confirmed=False)
        elif (ledger := open_ledger(shell.core)) is not None:
            self._ask_members(shell, ledger)
        else:
            self._ask_nodes(shell)

    def _ask_members(self, shell: TopicShell, ledger: LedgerMetadata) -> None:
        states: list[FenceState] = []

        def told(state: FenceState) -> None:
            states.append(state)
            if self.over:
                return
            verdict = ownership_proof.assess(states, ack_quorum=ledger.ack_quorum)
            if verdict is OwnershipProof.PROVED and open_ledger(shell.core) is ledger:
                self.owner.world.count("owner proved by fences")
                self._say(shell)
            elif verdict is OwnershipProof.REFUTED:
                self.owner.world.count("owner refuted by a fence")
                self._suspect(shell)

        self._ask_each(ledger.members, ledger.ledger_id, told)
        self.owner.post(FENCES_TICKS, "fences are unknown", lambda: None if self.over else self._ask_nodes(shell))

    def _ask_nodes(self, shell: TopicShell) -> None:
        """Whether the record may be believed: its store may be the one that was lost, in runs that lose stores."""
        if self.owner.parts.heads_from is None:
            self._read_record(shell)
            return
        states: list[FenceState] = []
        decided = False

        def told(state: FenceState) -> None:
            nonlocal decided
            states.append(state)
            quorum = self.owner.parts.settings.ack_quorum
            if not (self.over or decided) and ownership_proof.record_decides(states, ack_quorum=quorum):
                decided = True
                self._read_record(shell)

        self._ask_each(self.owner.storage_nodes().live, ownership_proof.NO_LEDGER, told)

    def _ask_each(self, nodes: Iterable[Incarnation], ledger_id: LedgerId, told: Callable[[FenceState], None]) -> None:
        era = self.owner.store.era
        for node in nodes:
            server = self.client.nodes[Incarnation(node.split(".")[0])].at(self.owner.name)
            self.client._send(
                self.owner.name,
                server,
                "fenced?",
                lambda s=server, n=node: self._at_node(s, n, era, ledger_id, told),  # type: ignore[misc]
            )

    def _at_node(
        self,
        server: StorageServer,
        member: Incarnation,
        era: Era,
        ledger_id: LedgerId,
        told: Callable[[FenceState], None],
    ) -> None:
        if server.incarnation == member:
            if server.refuses(era):
                self.owner.world.count("question of a former era")
                self.client._send(server.name, self.owner, "is of a former era", lambda: told(FenceState.FENCED))
                return
            state = server.core.ledgers.fence_state(ledger_id)
            self.client._send(server.name, self.owner, f"is {state.name}", lambda: told(state))

    def _read_record(self, shell: TopicShell, *, confirmed: bool = True) -> None:
        """confirmed: a record that names this owner at its epoch proves it; else it is looked at for a newer one."""
        store, world = self.owner.store, self.owner.world
        delay = self.client._delay(self.owner.name, "store")
        if delay is None:
            return
        delay += max(0, store.stalled_until - world.now)

        def read() -> None:
            if store.lost:
                return
            data, _ = store.get(f"topics/{self.client.topic_id}")
            record = None if data is None else decode_topic(data)
            current = record is not None and (record.owner, record.owner_epoch) == (self.owner.incarnation, shell.epoch)
            self.owner.post(1, "record read", lambda: decide(current))

        def decide(current: bool) -> None:
            if self.over:
                return
            if not current:
                self._suspect(shell)
            elif confirmed:
                world.count("owner proved by the record")
                self._say(shell)
            else:
                self.over = True
                self._refuse()

        world.after(delay, "store reads a record for a question", read)

    def _say(self, shell: TopicShell) -> None:
        self.over = True
        if shell.core.phase is Phase.SERVING:
            self._answer(shell.confirmed, shell.epoch)
        else:
            self._refuse()

    def _suspect(self, shell: TopicShell) -> None:
        self.over = True
        self._refuse()
        if not shell.over:
            shell.handle(HigherEpochReported())
