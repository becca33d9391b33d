"""Random histories of one subscription: consumers of each type that crash, return, acknowledge late and out of order,
failed ack ledgers, takeovers, seeks. Checked while they run: nothing that is acknowledged durably is delivered again at
its seek_epoch, no consumer gets more than its credit, the messages of a key stay in order. At the end everything that
was not acknowledged is delivered.

Each history does some things often and others never, or what needs several rare things in a row would never happen.

`python -m tests.core.delivery.test_subscription_histories FIRST COUNT` plays so many others of each type.
"""

import sys
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from random import Random

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAck,
    ConsumerEffect,
    DeadLetterStored,
    DeadLetterTopicResolved,
    DeliverMessages,
    PublishDeadLetter,
    ResolveDeadLetterTopic,
    Subscribed,
)
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck
from oncelog.core.ids import TopicId
from tests.core.acks.subscription_fold import fold_changes
from tests.core.delivery.subscription_world import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Client, RangeLimit, World

DLQ = TopicId("d1" * 16)
STEPS = 250
SEEDS = range(12)
#: How much more often than usual a history does something.
FACTORS = (0, 1, 1, 1, 5)


@dataclass(eq=False)
class Worker:
    """The client of one consumer: what its stream has brought, what it kept of a former stream, and what its
    application works on."""

    name: str
    client: Client
    window: int
    buffer: list[int] = field(default_factory=list)
    carried: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    handed_out: int = 0
    reported: int = 0
    received: int = 0
    seek_epoch: int = 0

    @property
    def held(self) -> list[int]:
        return self.carried + self.buffer + self.begun


class History(World):
    """A world that checks what is delivered."""

    def __init__(self, seed: int, type_: SubscriptionType) -> None:
        self.random = Random(f"{seed} {type_}")
        self.type = type_
        self.workers: dict[int, Worker] = {}
        self.keys: list[str | None] = []
        self.next_name = 0
        #: {request: (seek_epoch, its indexes, whose)} of acknowledgements, positive and negative
        self.requested: dict[int, tuple[int, list[int], Worker]] = {}
        self.rejected: dict[int, tuple[int, list[int], Worker]] = {}
        #: {index: who rejected it}, until it is delivered again
        self.nacked: dict[int, Worker] = {}
        #: (seek_epoch, index) of messages that consumers had begun when they were lost
        self.late: list[tuple[int, int]] = []
        #: dead letters that are on their way to their topic
        self.unpublished: list[PublishDeadLetter] = []
        self.max_deliveries = self.random.choice([2, 4])
        usual: dict[Callable[..., None], int] = {
            self.grow: 10, self.attach_one: 6, self.write_some: 14, self.fail: 2, self.let_time_pass: 4,
            self.owner_dies: 1, self.seek_somewhere: 1, self.dead_letters: 4, self.limit: 1, self.work: 17,
            self.report: 15, self.acknowledge: 13, self.acknowledge_late: 2, self.reject: 3, self.close: 2,
            self.lose: 2, self.reconnected: 4,
        }  # fmt: skip
        self.of_workers = (
            self.work, self.report, self.acknowledge, self.acknowledge_late, self.reject, self.close, self.lose,
            self.reconnected,
        )  # fmt: skip
        #: {what the history does: how often}
        self.weights = {each: weight * self.random.choice(FACTORS) for each, weight in usual.items()}
        self.weights[self.work] = max(self.weights[self.work], 1)  # or nothing may be left to draw from
        super().__init__()
        self.attach()
        self.write()

    @property
    def dead(self) -> Container[int]:
        """The pending dead letters."""
        return self.state.subscriptions[self.number].dead_letters

    def grow(self) -> None:
        count = self.random.randint(1, 6)
        keys = [self.random.choice([None, "a", "b", "c", "d"]) for _ in range(count)]
        self.keys += keys
        self.store(count, keys)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _delivered(self, frame: DeliverMessages) -> None:
        super()._delivered(frame)
        worker = next(w for w in self.workers.values() if w.client.answer and w.client.number == frame.consumer)
        self.sync(worker)
        acks = self.state.subscriptions[self.number].acks
        assert frame.seek_epoch == self.state.subscriptions[self.number].seek_epoch
        for entry in frame.entries:
            for first, last in entry.ranges:
                for index in range(first, last + 1):
                    assert not acks.contains(index), f"{index} is acknowledged and delivered"
                    assert index not in self.dead, f"{index} is a dead letter and delivered"
                    assert index not in self.in_flight(), f"{index} is delivered, its acknowledgement is in flight"
                    self.nacked.pop(index, None)
                    self._check_key(worker, index)
                    worker.buffer.append(index)
                    worker.received += 1
        assert worker.received <= worker.reported + worker.window, "more than the credit"

    def in_flight(self) -> list[int]:
        """The messages whose acknowledgement is not answered; that of a lost consumer never is."""
        epoch, live = self.state.subscriptions[self.number].seek_epoch, self.live()
        asked = [indexes for asked, indexes, by in self.requested.values() if asked == epoch and by in live]
        return [index for indexes in asked for index in indexes]

    def _check_key(self, worker: Worker, index: int) -> None:
        if self.type is not KEY_SHARED or self.keys[index] is None:
            return
        acks, hidden = self.state.subscriptions[self.number].acks, self.subscription._context.deliverable.hidden
        for earlier in range(acks.mark_delete, index):
            if self.keys[earlier] != self.keys[index] or acks.contains(earlier) or earlier in hidden:
                continue
            if earlier in self.dead or earlier in worker.held:
                continue
            raise AssertionError(f"{index} of key {self.keys[index]} is delivered, {earlier} is not with its consumer")

    def _check_rejected(self, worker: Worker, index: int) -> None:
        """No message of a key reaches the application while its rejection of an earlier one is written or delayed."""
        context = self.subscription._context
        pending = context.deliverable.delayed | self.subscription._redeliveries.counting
        rejected = {self.keys[i] for i, by in self.nacked.items() if by is worker and i < index and i in pending}
        assert self.type is not KEY_SHARED or self.keys[index] not in rejected - {None}, f"{index} overtakes"

    # --- what consumers do --------------------------------------------------------------------------------------------

    def attach(self) -> None:
        self.next_name += 1
        name = f"c{self.next_name}"
        self._attached(name, self.subscribe(
            name, self.type, written=self.random.random() < 0.5, first_index=0, max_deliveries=self.max_deliveries,
            dead_letter_topic="dlq", ack_timeout_ms=self.random.choice([0, 20_000]),
        ))  # fmt: skip

    def attach_one(self) -> None:
        if len(self.workers) < 4:
            self.attach()

    def _attached(self, name: str, client: Client) -> Worker:
        window = self.random.choice([1, 3, 10])
        worker = self.workers[client.opening.call] = Worker(name, client, window, seek_epoch=client.seek_epoch)
        return worker

    def live(self) -> list[Worker]:
        """The workers whose consumers are attached."""
        return [
            w for w in self.workers.values()
            if isinstance(w.client.answer, Subscribed) and self.clients.get(w.client.number) is w.client
        ]  # fmt: skip

    def forget_dead(self) -> None:
        """Workers that were refused or ended are gone."""
        for call, worker in list(self.workers.items()):
            client = worker.client
            refused = client.answer is not None and not isinstance(client.answer, Subscribed)
            if refused or client.ended is not None:
                del self.workers[call]

    def sync(self, worker: Worker) -> None:
        """The client drops what was recalled."""
        self.void(worker)
        for index in worker.client.recalled:
            if index in worker.buffer:
                worker.buffer.remove(index)
                worker.handed_out += 1
            elif index in worker.carried:
                worker.carried.remove(index)
        worker.client.recalled.clear()

    def report(self, worker: Worker) -> None:
        self.sync(worker)
        worker.reported = worker.handed_out
        self.flow(worker.client, worker.window, worker.handed_out, worker.begun)

    def work(self, worker: Worker) -> None:
        """The application takes a message."""
        self.sync(worker)
        if worker.carried:
            worker.begun.append(worker.carried.pop(0))
        elif worker.buffer:
            index = worker.buffer.pop(0)
            self._check_rejected(worker, index)
            worker.begun.append(index)
            worker.handed_out += 1

    def acknowledge(self, worker: Worker, count: int = 3) -> None:
        self.sync(worker)
        chosen = self.random.sample(worker.begun, min(len(worker.begun), count))
        if not chosen:
            return
        for index in chosen:
            worker.begun.remove(index)
        self.requested[self._calls + 1] = (worker.client.seek_epoch, chosen, worker)
        self.ack(worker.client, *chosen, written=False)

    def reject(self, worker: Worker) -> None:
        self.sync(worker)
        if worker.begun:
            index = worker.begun.pop(self.random.randrange(len(worker.begun)))
            self.rejected[self._calls + 1] = (worker.client.seek_epoch, [index], worker)
            self.nacked[index] = worker
            self.nack(worker.client, index, delay_ms=self.random.choice([0, 500, 5_000, None]), written=False)

    def acknowledge_late(self, worker: Worker) -> None:
        """What a lost consumer had begun is acknowledged after all, by way of another one (hazard
        ack-before-delivery)."""
        if not self.late:
            return
        epoch, index = self.late.pop(self.random.randrange(len(self.late)))
        self.ack(worker.client, index, epoch=epoch, written=False)

    def close(self, worker: Worker) -> None:
        self.gone(worker, lost=False)

    def lose(self, worker: Worker) -> None:
        self.gone(worker, lost=True)

    def gone(self, worker: Worker, *, lost: bool) -> None:
        self.late += [(worker.client.seek_epoch, index) for index in worker.begun]
        del self.workers[worker.client.opening.call]
        self.detach(worker.client, lost=lost)

    def reconnected(self, worker: Worker) -> None:
        """The stream broke and the client resumes with what it holds."""
        self.sync(worker)
        del self.workers[worker.client.opening.call]
        if self.random.random() < 0.7 and worker.client.number in self.clients:
            self.detach(worker.client)
        client = self.reconnect(worker.client, held=worker.held, written=False)
        again = self._attached(worker.name, client)
        again.window = worker.window
        self.returned(again, worker)

    def returned(self, again: Worker, former: Worker) -> None:
        answer = again.client.answer
        if not isinstance(answer, Subscribed):
            return
        kept = {index for first, last in answer.kept for index in range(first, last + 1)}
        again.carried = [index for index in former.carried + former.buffer if index in kept]
        again.begun = [index for index in former.begun if index in kept]

    # --- faults -------------------------------------------------------------------------------------------------------

    def owner_dies(self) -> None:
        """The next owner has a prefix of what was appended; consumers come back or not."""
        prefix = self.random.randint(0, len(self.chain))
        fold_changes(self.state, [change for change, _ in self.chain[:prefix]])
        workers = self.live()
        for each in (self.workers, self.clients, self.requested, self.rejected, self.nacked, self.unpublished):
            each.clear()
        self.take_over()
        for worker in workers:
            if self.random.random() < 0.7:
                client = self.reconnect(worker.client, held=worker.held, written=False)
                again = self._attached(worker.name, client)
                again.window = worker.window
                self.returned(again, worker)

    def seek_somewhere(self) -> None:
        self.nacked.clear()
        self.seek(self.random.randint(0, self.log.next_index), written=False)

    def dead_letters(self) -> None:
        for asked in self.other(ResolveDeadLetterTopic):
            self.post(DeadLetterTopicResolved(asked.number, asked.topic, DLQ))
        self.unpublished += self.other(PublishDeadLetter)
        stored, self.unpublished = self.unpublished[:2], self.unpublished[2:]
        for each in stored:
            self.post(DeadLetterStored(each.number, each.topic_id, each.sequence))

    # --- a run --------------------------------------------------------------------------------------------------------

    def one_step(self) -> None:
        self.forget_dead()
        live = self.live()
        worker = self.random.choice(live) if live else None
        [action] = self.random.choices(list(self.weights), list(self.weights.values()))
        if action in self.of_workers:
            if worker is not None:
                action(worker)
        else:
            action()

    def write_some(self) -> None:
        self.write(self.random.choice([0, 0, 1, 2]))

    def let_time_pass(self) -> None:
        self.pass_time(self.random.choice([250, 1_000, 30_000]))

    def limit(self) -> None:
        limits: list[AckStateCheck] = [NO_LIMITS, RangeLimit(0), RangeLimit(2)]
        self.ack_limit = self.random.choice(limits)
        self.topic.set_ack_state_limit(self.ack_limit)
        self.settle()

    def _perform(self, effect: ConsumerEffect) -> None:
        super()._perform(effect)
        if isinstance(effect, AnswerAck):
            self._answered(effect)

    def _answered(self, answer: AnswerAck) -> None:
        state, acked = self.state.subscriptions[self.number], answer.request in self.requested
        asked = self.requested.pop(answer.request, None) or self.rejected.pop(answer.request, None)
        if asked is None:
            return
        epoch, indexes, worker = asked
        if answer.error is None:
            assert not acked or epoch != state.seek_epoch or all(state.acks.contains(index) for index in indexes)
        elif epoch == worker.client.seek_epoch:
            worker.begun += indexes  # and the client sends it again
            for index in indexes:
                self.nacked.pop(index, None)

    def void(self, worker: Worker) -> None:
        """The client drops what it had before a seek."""
        if worker.client.seek_epoch != worker.seek_epoch:
            worker.handed_out += len(worker.buffer)
            worker.buffer.clear()
            worker.carried.clear()
            worker.begun.clear()
            worker.seek_epoch = worker.client.seek_epoch

    def finish(self) -> None:
        """Faults are over: everything has to be acknowledged, also while new messages are withheld."""
        for _ in range(400 + self.log.next_index):
            self.forget_dead()
            if self.state.subscriptions[self.number].acks.mark_delete == self.log.next_index:
                return
            if not self.workers:
                self.attach()
            for worker in self.live():
                for _ in range(5):
                    self.work(worker)
                self.acknowledge(worker, count=100)
                self.report(worker)
            self.write()
            self.dead_letters()
            self.write()
            self.pass_time(1_000)
        acks = self.state.subscriptions[self.number].acks
        raise AssertionError(f"not delivered: {acks.unacked_ranges(0, self.log.next_index, 10)}")


def play(seed: int, type_: SubscriptionType) -> None:
    history = History(seed, type_)
    try:
        for _ in range(STEPS):
            history.one_step()
        history.finish()
    except Exception as error:
        error.add_note(f"seed {seed} of {type_.name}")
        raise


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_histories_keep_what_is_promised(type_: SubscriptionType) -> None:
    for seed in SEEDS:
        play(seed, type_)


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for number in range(first, first + count):
        for one in (EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED):
            play(number, one)
