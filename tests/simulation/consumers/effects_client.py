"""A consumer whose messages take effect in a simulated store: the order of `oncelog_effects.source`, by the decisions
of `core.effects`.

What it does is a generator. It yields what it waits for, and goes on at the first moment when that is so.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from oncelog.core.delivery.store_binding.events import (
    BindRequested,
    EffectsAsked,
    EffectsRequest,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.effect_errors import EffectsFenced, RedoLost, StoreAhead, StoreMissing, StoreTooOld
from oncelog.core.errors import OncelogError
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch
from oncelog.core.sdk.consumer.events import (
    ConsumerEffect,
    ConsumerSettings,
    EffectsEnded,
    EffectsWanted,
    MessageRange,
    MessagesReady,
    SeekWanted,
)
from oncelog.core.sdk.consumer.session import ConsumerSession, ConsumerSessionState
from oncelog.verify.violation import Violation
from oncelog_effects.core.effects import ordered
from oncelog_effects.core.effects.ordered import Outranked, Received, Step, StoredPosition
from oncelog_effects.store import ClaimLost
from tests.oracles.consumption import Place
from tests.simulation.consumers.client import ConsumerClient, ConsumerParts, Habits, Message
from tests.simulation.consumers.effects_store import SimulatedStore

#: An idle consumer compares again.
VERIFY_TICKS = 700
PAUSE_TICKS = 60
#: how long the answer of the store is waited for
ANSWER_TICKS = 400
BATCH_MAX = 3
ACK_EVERY_TICKS = 150

Waits = Generator[Callable[[], bool], None, None]


class _ClaimAgain(Exception):
    """What is known of log and store is void."""


class _AttachAgain(Exception):
    """What was received is of no use."""


class EffectsClient(ConsumerClient):
    """One consumer name of a failover or exclusive subscription that is bound to the store."""

    def __init__(
        self, parts: ConsumerParts, name: str, settings: ConsumerSettings, habits: Habits, store: SimulatedStore
    ) -> None:
        super().__init__(parts, name, settings, habits)
        self._store = store
        self._claims = 0

    def _begin(self) -> None:
        self._stored: StoredPosition | None = None
        self._seek_epoch = SeekEpoch(0)
        self._waiting: list[Message] = []
        self._unacked: Message | None = None
        self._acked_at = self.world.now
        self._results: dict[int, object] = {}
        self._script = self._run()
        self._until: Callable[[], bool] = lambda: True
        super()._begin()

    # --- the generator ------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        self._later("goes on", self._take)
        if self.session.state is ConsumerSessionState.CLOSED:
            return
        log = self.parts.log
        if not self.diligent and self.session.attachment is not None and self.world.chance(self.habits.seek):
            redo = self.world.chance(0.4)
            self.world.count("redo wanted" if redo else "seek wanted")
            index = self.world.rng.randint(log.first_index, log.next_index)
            self._feed(SeekWanted(next(self._requests), index, redo=redo))
        self._go_on()

    def _go_on(self) -> None:
        """As far as nothing has to be waited for. A detached consumer goes on with another script."""
        script, life = self._script, self.life
        while script is self._script and life == self.life and self._until():
            until = next(script)
            if script is self._script and life == self.life:
                self._until = until

    def _perform(self, session: ConsumerSession, effect: ConsumerEffect) -> None:
        if isinstance(effect, EffectsEnded):
            self._results[effect.request] = effect.result
        elif not isinstance(effect, MessagesReady):  # messages are taken when nothing waits
            super()._perform(session, effect)

    def _receive(self, run: MessageRange) -> None:
        place = Place(self._place().subscription_id, run.seek_epoch)
        for index in range(run.first, run.last + 1):
            self.world.count("message received")
            self.history.received(place, index, b"")
            self._waiting.append(Message(index, run.seek_epoch, run.generation))

    @property
    def _generation(self) -> Generation:
        known = self.session.attachment
        return Generation(0) if known is None or known.consumer is None else known.generation

    def _is_void(self, message: Message) -> bool:
        known = self.session.attachment
        return (
            known is None
            or message.seek_epoch < max(known.seek_epoch, self._seek_epoch)
            or message.generation < known.generation_floor
        )

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _run(self) -> Waits:
        while True:
            try:
                yield lambda: self._generation > 0
                yield from self._claim()
                yield from self._effect()
            except (_ClaimAgain, ClaimLost):
                continue
            except _AttachAgain:
                self.world.count("effects attach anew")
                self._detach()
            except (StoreTooOld, StoreMissing):
                self._store.restore_newest()
            except OncelogError as error:
                if isinstance(error, StoreAhead | RedoLost):
                    raise Violation("effects", f"{self.name} stops, and the log was not restored: {error}") from error
                self.world.count(f"effects again: {error.code}")
            at = self.world.now + PAUSE_TICKS
            yield lambda at=at: self.world.now >= at  # type: ignore[misc]

    def _detach(self) -> None:
        self._acknowledge()
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.stream.sever()
        self._begin()

    def _asked(self, request_of: Callable[[int], EffectsRequest]) -> Generator[Callable[[], bool], None, Any]:
        request = next(self._requests)
        self._feed(EffectsWanted(request_of(request)))
        yield lambda: request in self._results
        result = self._results.pop(request)
        if isinstance(result, OncelogError):
            raise result
        return result

    def _effects(self, from_index: int) -> Generator[Callable[[], bool], None, SubscriptionEffects]:
        found = yield from self._asked(lambda request: EffectsAsked(ConsumerNumber(0), request, from_index))
        assert isinstance(found, SubscriptionEffects)
        return found

    def _in_store(self, begin: Callable[[Callable[[object], None]], None]) -> Generator[Callable[[], bool], None, Any]:
        answers: list[object] = []
        begin(answers.append)
        at = self.world.now + ANSWER_TICKS
        yield lambda: bool(answers) or self.world.now >= at
        if not answers:
            raise _ClaimAgain
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return answers[0]

    def _acknowledge(self) -> None:
        message, self._unacked = self._unacked, None
        self._acked_at = self.world.now
        if message is not None and self.session.attachment is not None:
            self._ack_below(message)

    def _settle(self) -> Waits:
        self._acknowledge()
        yield lambda: not self._acking

    def _claim(self) -> Waits:
        before = self._stored
        yield from self._settle()
        effects = yield from self._effects(0)
        if not ordered.is_under_grant(effects, self._generation):
            self.world.count("effects asked under another grant")
            raise _ClaimAgain
        self._claims += 1
        nonce = f"{self.name}/{self._claims}"
        try:
            stored = yield from self._in_store(lambda answer: self._store.claim(self, effects, nonce, answer))
        except Outranked as error:
            again = yield from self._effects(0)
            found = ordered.outranked_by(error.stored, again)
            self.world.count(f"effects outranked: {type(found).__name__}")
            if isinstance(found, EffectsFenced):
                raise found from None
            raise Violation("effects", f"{self.name} is outranked by a claim of nobody: {found}") from None
        self.world.count("effects claimed")
        if not effects.store_id:
            yield from self._asked(
                lambda r: BindRequested(ConsumerNumber(0), r, effects.seek_epoch, effects.generation, 0)
            )
        missing = ordered.lost(stored, effects)
        if missing:
            self._store.check_rewind(missing)
            yield from self._asked(
                lambda r: RewindRequested(ConsumerNumber(0), r, effects.seek_epoch, effects.generation, missing)
            )
            self.world.count("effects rewound")
            self._stored = None
            self._waiting.clear()
            raise _ClaimAgain
        if ordered.went_back(before, stored):
            raise _AttachAgain
        self._stored, self._seek_epoch = stored, effects.seek_epoch

    def _effect(self) -> Waits:
        verify_at = self.world.now + VERIFY_TICKS
        while True:
            if not self._waiting:
                self._take_now(BATCH_MAX)
            stored = self._stored
            assert stored is not None
            first = self._waiting[0] if self._waiting else None
            received = None if first is None else Received(first.index, first.seek_epoch, self._is_void(first))
            match ordered.next_step(received, stored, self._seek_epoch, self._generation):
                case Step.DROP:
                    self._waiting = [each for each in self._waiting if not self._is_void(each)]
                    raise _ClaimAgain
                case Step.CLAIM:
                    raise _ClaimAgain
                case Step.ACKNOWLEDGE:
                    self.world.count("effect filtered")
                    self._unacked = self._waiting.pop(0)
                    self._store.ever.add(self._unacked.index)  # an operator may have passed it over, and sought back
                case Step.CHECK_GAP:
                    assert first is not None
                    self.world.count("gap checked")
                    yield from self._settle()
                    if not ordered.passes_gap(first.index, (yield from self._effects(first.index))):
                        raise _AttachAgain
                    yield from self._apply(stored)
                case Step.APPLY:
                    if first is not None:
                        yield from self._apply(stored)
                    elif self.world.now >= verify_at:
                        raise _ClaimAgain
            if self._unacked is None:
                self._acked_at = self.world.now
            elif self.world.now - self._acked_at >= ACK_EVERY_TICKS:
                self._acknowledge()
            if not self._waiting:
                at = self.world.now
                yield lambda at=at: self.world.now > at  # type: ignore[misc]

    def _apply(self, stored: StoredPosition) -> Waits:
        messages = self._waiting[:1]
        for message in self._waiting[1:]:
            if message.index == messages[-1].index + 1:
                messages.append(message)
        indexes = [message.index for message in messages]
        following = replace(stored, position=indexes[-1] + 1, last_message=str(indexes[-1]))
        yield from self._in_store(lambda answer: self._store.apply(self, stored, following, indexes, answer))
        self.world.count("effect applied", len(indexes))
        self._stored, self._unacked = following, messages[-1]
        self._waiting = self._waiting[len(messages) :]
