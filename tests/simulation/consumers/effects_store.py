"""A simulated store of ordered effects: one row, a lock, and a table of what took effect. It crashes, forgets, and
answers late or never.

    a transaction arrives -> waits for the row -> decides -> is committed a while later, or aborted -> is answered
        a crash: what is open is aborted, what waits is forgotten; nobody is answered
        it forgets: a crash, and the store is as it was some commits ago
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import StoreUnavailable
from oncelog.verify.violation import Violation
from oncelog_effects.core.effects import ordered
from oncelog_effects.core.effects.ordered import StoredPosition
from oncelog_effects.store import ClaimLost
from tests.simulation.world import Process, World

STORE_ID, EFFECT = "5a" * 16, "invoices"
#: between two faults of the store; it forgets at most so many commits
FAULT_TICKS = (100, 900)
COMMITS_LOST_MAX = 8
HOLD_TICKS, SLOW_TICKS = (1, 30), (200, 900)

#: (subscription number, redo epoch) of the redo that a row belongs to; (0, 0): there was none
Era = tuple[int, int]
Answer = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Content:
    """applied: what is in the application's table."""

    row: StoredPosition | None = None
    era: Era = (0, 0)
    applied: frozenset[tuple[Era, int]] = frozenset()


class SimulatedStore:
    """Of one subscription."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._rng = random.Random(seed)
        self.content = Content()
        #: the messages of which the store ever said that they took effect, also if that is forgotten
        self.ever: set[int] = set()
        #: former ones, the newest last; and the one before the store forgot: an operator's newest backup
        self._former: list[Content] = []
        self._newest = self.content
        #: {(subscription number, generation): the consumer that claimed with it}
        self._claimants: dict[tuple[int, int], str] = {}
        #: None: nobody has locked the row
        self._locked_by: object | None = None
        self._queue: list[Callable[[], None]] = []
        self.healed = False
        self._fault_later()

    # --- faults -------------------------------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        self._world.after(self._rng.randint(*FAULT_TICKS), "store: a fault", self._fault)

    def heal(self) -> None:
        """The last fault: consumers that are idle by now have to notice it by themselves."""
        self.healed = True
        self._break()

    def _fault(self) -> None:
        if not self.healed:
            self._fault_later()
            self._break()

    def _break(self) -> None:
        self._abort()
        back = self._rng.randint(0, COMMITS_LOST_MAX)
        if not back or len(self._former) < back:
            self._world.count("store crashes")
            return
        self._world.count("store forgets")
        if not self.content.applied < self._newest.applied:
            self._newest = self.content
        self.content = self._former[-back]
        del self._former[-back:]

    def _abort(self) -> None:
        self._locked_by = None
        self._queue.clear()

    def restore_newest(self) -> None:
        """An operator does, because the store is too old. Its row does not tell: a claim raises the rank of one that
        lacks effects, and a redo lowers the position."""
        self._world.count("newer backup restored")
        self._abort()
        if not self._newest.applied <= self.content.applied:
            self.content = self._newest

    def check_rewind(self, lost: Sequence[IndexRange]) -> None:
        """Only what took effect once can be lost. Raises Violation."""
        for index in (index for first, last in lost for index in range(first, last + 1)):
            if index not in self.ever:
                raise Violation("effects", f"{index} never took effect, and is rewound")

    # --- transactions -------------------------------------------------------------------------------------------------

    def claim(self, process: Process, effects: SubscriptionEffects, nonce: str, answer: Answer) -> None:
        """Answers the StoredPosition, or the error of the decision. A generation orders claims only if one consumer
        claims with it. Raises Violation."""

        def decide() -> Content:
            before = self.content
            decided = ordered.claimed(before.row, effects, STORE_ID, nonce)
            claimant = self._claimants.setdefault((effects.number, effects.generation), process.name)
            if claimant != process.name:
                raise Violation("effects", f"{claimant} and {process.name} claim with generation {effects.generation}")
            era = (effects.number, effects.redo_epoch) if effects.redo_epoch else before.era
            if before.row is not None and before.row.rank.subscription_number != effects.number:
                self.ever |= set(range(decided.position))  # a recreated subscription does not know what was redone
            return replace(before, row=decided, era=era)

        self._begin(process, decide, answer)

    def apply(
        self,
        process: Process,
        expected: StoredPosition,
        following: StoredPosition,
        indexes: Sequence[int],
        answer: Answer,
    ) -> None:
        """Answers `following`, or ClaimLost."""

        def decide() -> Content:
            before = self.content
            if not ordered.is_expected(before.row, expected):
                raise ClaimLost
            new = {(before.era, index) for index in indexes}
            if new & before.applied:
                raise Violation("effects once", f"{min(new & before.applied)} takes effect a second time")
            return replace(before, row=following, applied=before.applied | new)

        self._begin(process, decide, answer)

    def _begin(self, process: Process, decide: Callable[[], Content], answer: Answer) -> None:
        life, rng = process.life, self._rng

        def reply(result: object) -> None:
            process.post(rng.randint(1, 20), "store answers", lambda: answer(result), life=life)

        def begin() -> None:
            if self._locked_by is not None:
                self._queue.append(begin)
                return
            try:
                content = decide()
            except Violation:
                raise
            except Exception as error:  # noqa: BLE001  whatever the decision raises ends the transaction
                reply(error)
                self._unlock()
                return
            mine = self._locked_by = object()
            hold = SLOW_TICKS if not self.healed and rng.random() < 0.05 else HOLD_TICKS
            self._world.after(rng.randint(*hold), "store commits", lambda: commit(mine, content))

        def commit(mine: object, content: Content) -> None:
            if self._locked_by is not mine:
                return
            self._locked_by = None
            if not self.healed and rng.random() < 0.05:
                self._world.count("store aborts")
                reply(StoreUnavailable("the connection was lost"))
            else:
                if self.content.row is not None:
                    self._former.append(self.content)
                self.content = content
                self.ever |= {index for _, index in content.applied}
                if self.healed or rng.random() > 0.05:
                    reply(content.row)
                else:
                    self._world.count("commit not answered")
            self._unlock()

        self._world.after(rng.randint(1, 20), "store is asked", begin)

    def _unlock(self) -> None:
        if self._queue and self._locked_by is None:
            self._queue.pop(0)()
