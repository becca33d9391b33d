"""Who is the active consumer of an exclusive or failover subscription (hazards delivered-while-held,
activation-not-durable).

    best consumer is not the active one -> ConsumerActivated in flight -> durable: both consumers learn it, this one
                                                                       and the former one
                                                                    -> dropped: chosen again

A generation is told when it is durable, and is one above the durable one and those that a group has in flight. A grant
waits neither for the former holder's word nor for its acknowledgements. After a takeover the holder resumes with its
generation as it is; for up to a second no other one is granted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.core.acks.changes import ConsumerActivated
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.events import ConsumerActive, ConsumerOpening
from oncelog.core.ids import Generation


@dataclass(slots=True, eq=False)
class ActivationToken:
    """A grant in flight."""

    consumer: ConnectedConsumer
    generation: Generation


class Activation:
    """The active consumer of one subscription."""

    def __init__(self, context: Context, *, partition: int, deposed: Callable[[ConnectedConsumer], None]) -> None:
        """deposed: takes back what a former active consumer holds."""
        self._context = context
        self._partition = partition
        self._deposed = deposed
        self.active: ConnectedConsumer | None = None
        self.granting: ActivationToken | None = None

    def is_holder(self, opening: ConsumerOpening) -> bool:
        """Whether the request comes from the durable holder of the grant, and no other grant is under way."""
        state, resume = self._context.state, opening.resume
        return (
            resume is not None and state.generation > 0 and resume.generation == state.generation
            and opening.consumer_name == state.active_consumer and self.active is None and self.granting is None
            and not self._context.raising
        )  # fmt: skip

    def resume(self, consumer: ConnectedConsumer) -> None:
        """The holder is back: it is active at once."""
        self.active = consumer
        consumer.generation = self._context.state.generation

    def gone(self, consumer: ConnectedConsumer) -> None:
        """A consumer is not connected any more."""
        if self.active is consumer:
            self.active = None

    def choose(self) -> None:
        """Grant the best consumer, unless it is the active one or a grant is in flight."""
        if self.granting is not None:
            return
        best = self._context.consumers.best(self._partition)
        if best is None or best is self.active:
            return
        state = self._context.state
        generation = Generation(max(state.generation, self._context.raising) + 1)
        self.granting = ActivationToken(best, generation)
        self._context.append(ConsumerActivated(state.number, best.name, generation), self.granting)

    def settled(self, token: ActivationToken) -> ConnectedConsumer | None:
        """The grant is durable; returns the consumer that is active now, None: it is gone."""
        self.granting = None
        former, self.active = self.active, None
        if former is not None:
            former.generation = Generation(0)
            self._deposed(former)
            self._context.step.emit(ConsumerActive(former.number, former.generation))
        consumer = token.consumer
        if not self._context.consumers.connected(consumer):
            return None
        self.active = consumer
        consumer.generation = token.generation
        return consumer

    def dropped(self, token: ActivationToken) -> None:
        """The grant was not written: the durable holder is as before."""
        self.granting = None
