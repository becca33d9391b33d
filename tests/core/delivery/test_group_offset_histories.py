"""Random histories of groups: commits, raises, questions, trims, failures of the ack ledger and takeovers.

What a group was answered holds: no confirmed commit is lost, and none is undone by an older generation.
"""

import random
from collections.abc import Callable

import pytest

from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.delivery.group_offsets.events import (
    GenerationRaiseRequested,
    OffsetAsked,
    OffsetCommitRequested,
)
from oncelog.core.ids import Generation
from tests.core.delivery.subscription_world import World

MESSAGES = 20
STEPS = 120


class GroupHistory(World):
    """One group and one topic. Everything else stands still."""

    def __init__(self, seed: int) -> None:
        super().__init__(messages=[MESSAGES])
        self.random = random.Random(seed)
        self.calls = 0
        #: {call: its request}, without an answer
        self.open: dict[int, OffsetCommitRequested | GenerationRaiseRequested | OffsetAsked] = {}
        #: the lowest generation that may still commit, by what was answered
        self.fence = 0
        #: {call: the fence when it was asked}
        self.fences: dict[int, int] = {}
        self.offset: int | None = None
        self.trimming: int | None = None
        #: {what: how often}
        self.seen: dict[str, int] = {}

    # --- steps --------------------------------------------------------------------------------------------------------

    def step_once(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self.commit, 8), (self.raise_, 3), (self.ask, 3), (self.write_all, 5), (self.fail, 1),
            (self.next_owner, 1), (self.trim, 2), (self.end_trim, 2),
        ]  # fmt: skip
        [step] = self.random.choices([step for step, _ in steps], [weight for _, weight in steps])
        step()

    def _post(self, request: OffsetCommitRequested | GenerationRaiseRequested | OffsetAsked) -> None:
        self.open[request.call], self.fences[request.call] = request, self.fence
        self.post(request)

    def _call(self) -> int:
        self.calls += 1
        return self.calls

    def commit(self) -> None:
        generation = Generation(max(0, self.fence + self.random.choice((-1, 0, 0, 0, 1))))
        offset = self.random.randint(0, MESSAGES + 1)
        of = None if self.random.random() < 0.1 else generation
        self._post(OffsetCommitRequested(self._call(), "s", offset, of))

    def raise_(self) -> None:
        generation = Generation(self.fence + self.random.randint(0, 2))
        self._post(GenerationRaiseRequested(self._call(), "s", generation, create=self.random.random() < 0.3))

    def ask(self) -> None:
        self._post(OffsetAsked(self._call(), "s"))

    def write_all(self) -> None:
        """What was appended becomes durable; what that lets go on, too."""
        self.write()
        if self.trimming is None:
            assert not self.open, "nothing waits"
            self.check()

    def next_owner(self) -> None:
        """What is in flight is not in the chain, and is never answered."""
        self.trimming = None
        self.open.clear()
        first = self.topic.log.first_index
        self.take_over()
        self.topic.log.first_index = first
        self.check()

    def trim(self) -> None:
        """As retention does: not above a position, and not above a step back in flight."""
        if self.trimming is None:
            places = [each.mark_delete for each in self.state.subscriptions.values()]
            places += [place for place in (self.topic.steps_back_to(), MESSAGES) if place is not None]
            self.trimming = self.random.randint(
                self.topic.log.first_index, max(self.topic.log.first_index, min(places))
            )
            self.topic.trim_began(self.trimming)

    def end_trim(self) -> None:
        if self.trimming is not None:
            first, self.trimming = self.trimming, None
            self.topic.trim_ended(first)
            self.settle()

    # --- what is answered ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Of what became durable together, all answers count together."""
        super().settle()
        asked = False
        for answer in self.other(AnswerAdmin):
            request = self.open.pop(answer.call)
            asked = asked or isinstance(request, OffsetAsked)
            kind = type(request).__name__ if answer.error is None else type(answer.error).__name__
            self.seen[kind] = self.seen.get(kind, 0) + 1
            if answer.error is None:
                self._done(request, answer.generation)
        assert not asked or self.offset in (None, self.durable()), "a group is told what was confirmed"

    def _done(
        self, request: OffsetCommitRequested | GenerationRaiseRequested | OffsetAsked, generation: Generation
    ) -> None:
        if isinstance(request, OffsetAsked):
            return
        if isinstance(request, GenerationRaiseRequested):
            assert generation >= request.generation or (not generation and not request.create)
        else:
            assert request.offset <= MESSAGES, "no offset above the end"
            fence = self.fences[request.call]
            assert request.generation is None or request.generation >= fence, "an older generation has committed"
            self.offset = max(request.offset, self.topic.log.first_index)
        self.fence = max(self.fence, generation)

    def durable(self) -> int | None:
        number = self.state.names.get("s")
        return None if number is None else self.state.subscriptions[number].mark_delete

    def check(self) -> None:
        """Nothing is in flight."""
        found, first = self.durable(), self.topic.log.first_index
        if found is not None:
            assert found >= first, "the position was trimmed"
        if self.offset is not None:
            assert found == self.offset, "a confirmed commit is lost"


@pytest.mark.hazard("former-member-commits", "commit-below-a-trim")
@pytest.mark.parametrize("seed", range(150))
def test_random_history_keeps_what_was_answered(seed: int) -> None:
    history = GroupHistory(seed)
    for _ in range(STEPS):
        history.step_once()
    history.end_trim()
    history.write_all()
    assert {"OffsetCommitRequested", "GenerationRaiseRequested", "OffsetAsked", "ConsumerFenced"} <= history.seen.keys()
