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
from dataclasses import dataclass

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.era import Era, era_of
from oncelog.core.errors import NotOwner
from oncelog.core.ids import BEFORE_ALL, Incarnation, OwnerEpoch, Position, TopicId
from oncelog.verify.violation import Violation
from tests.oracles.history import History
from tests.simulation.servers.metadata.metadata_server import MetadataParts
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.ownership_proofs import Asked, Paths
from tests.simulation.servers.store.decoding import decode_topic
from tests.simulation.world import Process

ASK_TICKS = (20, 160)
#: A question without an answer is given up, and the route with it.
PATIENCE_TICKS = 400
OPEN_QUESTIONS_MAX = 3
STALE_ROUTES = 0.3
#: How often another part of the client looks the topic up, while a question is on its way.
OTHER_LOOK_UPS = 0.2


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
        self.rng = random.Random(f"{parts.world.seed}/{self.name}")
        self.paths = Paths(parts.network, nodes, topic_id, self.rng)
        self.history = history
        self.topic_id = topic_id
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
            self.paths.send(owner.name, self, "refused", lambda: self._failed(question))

        def answer(confirmed: Position, epoch: OwnerEpoch) -> None:
            self.paths.send(owner.name, self, "answered", lambda: self._answered(question, confirmed, epoch))

        self.paths.send(self.name, owner, "is asked", lambda: Asked(self.paths, owner, seen, answer, refuse).begin())

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
