"""Random histories that a real owner, over gRPC, and the reference model go through side by side.

A step is one batch, or one opening, lease, renewal, takeover or passage of time. A frame has many batches, so that most
of what is sent again meets its first write in flight. Time is that of the log: the histories end its periods by hand.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crc32c import crc32c

from oncelog.core.errors import (
    OncelogError,
    ProducerExpired,
    ProducerFenced,
    SequenceGap,
    StaleSequence,
    UnknownProducer,
)
from oncelog.core.formats.batch import encode_batch, encode_deltas
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.ids import (
    BEFORE_ALL,
    INSTANCE_ID_BYTES,
    Generation,
    InstanceId,
    Position,
    ProducerId,
    SessionNumber,
)
from oncelog.core.policies.producer_lifetimes import lease_ms
from oncelog.core.publishing.expiry import PERIOD_MS_MAX
from oncelog.core.topic.serving import Serving
from oncelog.core.topic_events.events import TopicTimerFired
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import (
    LEASE_PRODUCER_ID,
    PUBLISH,
    OpenDenied,
    OpenGranted,
    OpenRequest,
    PublishFrame,
)
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, PATIENT, OwnerLimits, OwnerWorld, owner_world
from tests.contract.owner.reference.model import Place, ReferenceProducer, ReferenceTopic, Verdict, Written, verdict
from tests.contract.owner.reference.programs import STRANGER, Program, Sent

#: An answer that has not come by then does not come; a history has thousands, and computes for seconds.
ANSWER_S = 60.0
HISTORY_S = 900.0
#: Ticks are frequent, so that periods of time begin soon; holders have no time to come back after a takeover.
LIMITS = OwnerLimits(topic=replace(PATIENT, tick_ms=50, return_grace_ms=1))
#: Eight hours: the timers of the owner end no period during a history.
LIFETIME_MS = lease_ms(8 * PERIOD_MS_MAX)
BATCHES_MAX = 8
#: {verdict on all that was asked: the error that says so}
ERRORS: dict[Verdict, type[OncelogError]] = {
    Verdict.GAP: SequenceGap, Verdict.STALE: StaleSequence, Verdict.FENCED: ProducerFenced,
    Verdict.EXPIRED: ProducerExpired, Verdict.UNKNOWN: ProducerExpired,
}  # fmt: skip
_KINDS = {
    Verdict.DUPLICATE: ResultKind.DUPLICATE, Verdict.JOINED: ResultKind.DUPLICATE,
    Verdict.UNVERIFIED: ResultKind.BELOW_MARK, Verdict.STALE: ResultKind.STALE_SEQUENCE,
}  # fmt: skip


class History:
    """One topic at one owner, through any number of takeovers."""

    def __init__(self, world: OwnerWorld, channel: Channel, runner: TopicRunner, seed: int) -> None:
        self.world = world
        self.channel = channel
        self.runner = runner
        self.rng = random.Random(seed)
        self.topic = ReferenceTopic()
        self.stream = channel.stream(PUBLISH)
        self.programs: list[Program] = []
        #: former instances of ids that are still there, or were
        self.former: list[tuple[Program, ProducerInstance]] = []
        self.verdicts: Counter[Verdict] = Counter()
        self.steps = 0
        self._requests = 0
        #: {session: the newest entry that it was told of}
        self._written: dict[SessionNumber, Position] = {}

    @property
    def serving(self) -> Serving:
        assert self.runner.core.serving is not None
        return self.runner.core.serving

    async def run(self, steps: int) -> None:
        for number in range(3):
            await self.open_by_name(f"producer {number}", contiguous=number == 0)
            await self.lease_anew()
        while self.steps < steps:
            await self.frame(held=self.rng.random() < 0.02)
            await self.something_else()

    async def something_else(self) -> None:
        rng, program = self.rng, self.rng.choice(self.programs)
        match rng.choices(
            ("nothing", "again", "leave", "renew", "fence", "former", "lease", "time", "takeover", "unknown"),
            (10, 30, 12, 6, 8, 10, 5, 8, 2, 2),
        ):
            case ["again"]:
                for each in self.programs:
                    if each.session is None:
                        await self.come_back(each)
            case ["leave"]:
                await self.leave(program)
            case ["renew"] if program.name is None:
                await self.lease(program, program.instance)
            case ["fence"]:
                await self.next_generation(program)
            case ["former"] if self.former:
                await self.former_comes_back(*rng.choice(self.former))
            case ["lease"] if len(self.programs) < 12:
                await self.lease_anew()
            case ["time"]:
                await self.pass_time()
            case ["takeover"]:
                await self.take_over()
            case ["unknown"]:
                await self.former_comes_back(STRANGER, STRANGER.instance)

    # --- batches ------------------------------------------------------------------------------------------------------

    async def frame(self, *, held: bool) -> None:
        """Batches of all that are connected, and their answers. held: their writes stay in flight for a while."""
        sent: dict[int, Sent] = {}
        batches: list[bytes] = []
        for program in self.programs:
            if program.session is not None and self.rng.random() < 0.7:
                self._fill(program, sent, batches, held=held)
        if not sent:
            return
        frame = PublishFrame([each.session for each in sent.values()], list(sent), batches)
        if not held:
            await self.stream.write(frame)
            await self._receive(sent)
            return
        writes = sum(each.written is not None for each in sent.values())
        with self.world.node.hold():
            await self.stream.write(frame)
            in_flight = self.serving.log.in_flight
            await until(lambda: len(in_flight) >= writes, DEADLINE_S, waiting_for="writes in flight")
            due = {request: each for request, each in sent.items() if _is_due(each)}
            await self._receive(due)
            await self._resume(STRANGER, STRANGER.instance)  # no other answer is before that one
        await self._receive({request: each for request, each in sent.items() if request not in due})

    def _fill(self, program: Program, sent: dict[int, Sent], batches: list[bytes], *, held: bool) -> None:
        """Some batches of one program. One that is refused as a whole is alone: it ends the session, and would leave
        those before it undecided."""
        session, producer = program.session, self.topic.producers[program.instance.producer_id]
        assert session is not None
        floors = producer.floor(), producer.floor(BATCHES_MAX)
        for number in range(self.rng.randint(1, BATCHES_MAX)):
            ids = self._ids(producer)
            if any(floors[0] < number <= floors[1] for number in ids):
                continue  # what is said of them depends on which writes are durable by then
            expected = verdict(self.topic, program.instance, ids)
            if isinstance(expected, Verdict):
                if number or held:
                    continue
            elif held and Verdict.STALE in expected:
                continue  # whether it waits for writes before it depends on more than the verdict
            self._requests += 1
            self.steps += 1
            one = sent[self._requests] = Sent(session, ids, expected)
            batches.append(_encoded(program.instance, ids))
            producer.active_ms = self.serving.log.time_ms
            if isinstance(expected, Verdict):
                self.verdicts[expected] += 1
                program.session = None
                return
            self.verdicts.update(expected)
            one.places = [producer.places.get(number) if number > floors[0] else None for number in ids]
            if expected[-1] is Verdict.FRESH:
                one.written = producer.store(ids)

    def _ids(self, producer: ReferenceProducer) -> Sequence[int]:
        """New ids, or some that were sent before, in other batches, or in none."""
        rng, mark = self.rng, producer.mark
        kind = rng.random()
        first = mark + 1
        if kind < 0.35:
            first = rng.randint(max(0, mark - 40), mark + 1)
        elif kind < 0.40:
            first = rng.randint(0, mark + 1)
        elif kind < 0.405:
            first = mark + rng.randint(2, 5)
        count = rng.choice((1, 2, 3, 6, 6, 40))
        if producer.contiguous:
            return range(first, first + count)
        if rng.random() < 0.001:
            count = 9_000  # the owner does not keep so many ids: it reads them from the entry
        return sorted(rng.sample(range(first, first + 2 * count), count))

    async def _receive(self, sent: dict[int, Sent]) -> None:
        """Compare each answer with what the model says."""
        left = dict(sent)
        ended = {each.session for each in sent.values() if isinstance(each.expected, Verdict)}
        while left or ended:
            try:
                async with asyncio.timeout(ANSWER_S):
                    received = await anext(aiter(self.stream))
            except TimeoutError:
                raise AssertionError(f"step {self.steps}: no answer to {left}, or no end of {ended}") from None
            for answers in received.answers.values():
                for request, result in sorted(answers, key=lambda each: each[0]):
                    self._compare(left.pop(request), result)
            ended -= {each.session for each in received.ended}

    def _compare(self, sent: Sent, result: Outcome | OncelogError) -> None:
        expected = sent.expected
        if isinstance(expected, Verdict):
            assert type(result) is ERRORS[expected], (expected, result)
            return
        assert isinstance(result, tuple), (sent.ids, expected, result)
        said = [(part.kind, part.position, part.offset + at) for part in result for at in range(part.count)]
        if sent.written is not None:
            sent.written.position = position = result[-1].position
            assert position is not None
            assert position > self._written.get(sent.session, BEFORE_ALL)
            self._written[sent.session] = position
        wanted = [
            _wanted(each, sent.written, place, at)
            for at, (each, place) in enumerate(zip(expected, sent.places, strict=True))
        ]
        told = [(kind, position, offset if position else 0) for kind, position, offset in said]
        assert told == wanted, (sent.ids, expected)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def _ask(self, opening: OpenRequest) -> OpenGranted | OpenDenied:
        await self.stream.write(PublishFrame(opens=[opening]))
        while True:
            received = await anext(aiter(self.stream))
            assert not received.answers
            if received.granted:
                return received.granted[0]
            if received.denied:
                return received.denied[0]

    def _opening(self, program: Program) -> OpenRequest:
        self.steps += 1
        return OpenRequest(
            self.steps, self.runner.name, self.runner.topic_id, program.name, program.mode,
            instance_id=program.instance_id,
        )  # fmt: skip

    async def open_by_name(self, name: str, *, contiguous: bool) -> None:
        """Of a producer that has never been here."""
        nobody = ProducerInstance(ProducerId(0), Generation(0))
        program = Program(name, contiguous, nobody, _instance_id(self.rng))
        granted = await self._ask(self._opening(program))
        assert isinstance(granted, OpenGranted)
        self._is_new(program, granted.producer_id, granted.generation)
        program.session = granted.session

    def _is_new(self, program: Program, pid: int, generation: int) -> None:
        program.instance = ProducerInstance(ProducerId(pid), Generation(generation))
        assert verdict(self.topic, program.instance) is Verdict.UNKNOWN
        assert generation == 1
        producer = ReferenceProducer(program.contiguous, 1, program.name is None, self.serving.log.time_ms)
        self.topic.producers[program.instance.producer_id] = producer
        self.programs.append(program)

    async def come_back(self, program: Program) -> None:
        """The same instance, with a new session."""
        await self._resume(program, program.instance)

    async def former_comes_back(self, program: Program, instance: ProducerInstance) -> None:
        """A zombie, or a stranger."""
        if program.name is None:
            await self.lease(program, instance)
        await self._resume(replace(program, instance_id=_instance_id(self.rng)), instance)

    async def _resume(self, program: Program, instance: ProducerInstance) -> None:
        expected = verdict(self.topic, instance)
        answer = await self._ask(self._opening(program)._replace(producer_name=None, resume=instance))
        if isinstance(expected, list):
            assert isinstance(answer, OpenGranted), answer
            self._connected(program, instance, answer)
            return
        self.verdicts[expected] += 1
        assert isinstance(answer, OpenDenied)
        if expected is Verdict.FENCED:
            assert type(answer.error) is ProducerFenced
            return
        assert type(answer.error) is UnknownProducer
        presented = await self._ask(self._opening(program)._replace(producer_name=None, present=instance))
        assert isinstance(presented, OpenDenied)
        assert type(presented.error) is ERRORS[expected]

    def _connected(self, program: Program, instance: ProducerInstance, granted: OpenGranted) -> None:
        producer = self.topic.producers[instance.producer_id]
        assert (granted.producer_id, granted.generation) == instance
        assert granted.last_sequence_id == producer.mark
        program.session = granted.session

    async def leave(self, program: Program) -> None:
        if program.session is None:
            return
        self.steps += 1
        await self.stream.write(PublishFrame(closes=[program.session]))
        while program.session not in {each.session for each in (await anext(aiter(self.stream))).ended}:
            pass
        program.session = None

    async def next_generation(self, program: Program) -> None:
        """Another instance takes the producer over; the former one is fenced."""
        former = program.instance
        if program.name is None:
            await self.lease(program, None)
        else:
            program.instance_id = _instance_id(self.rng)
            granted = await self._ask(self._opening(program))
            assert isinstance(granted, OpenGranted)
            producer = self.topic.producers[former.producer_id]
            producer.generation += 1
            program.instance = ProducerInstance(former.producer_id, Generation(producer.generation))
            self._connected(program, program.instance, granted)
        if program.instance != former:
            self._is_over(program, former)

    def _is_over(self, program: Program, instance: ProducerInstance) -> None:
        self.former = [*self.former[-30:], (replace(program), instance)]

    # --- leases -------------------------------------------------------------------------------------------------------

    async def _request(self, instance_id: bytes, pid: int = 0, generation: int = 0) -> pb.LeaseProducerIdAnswer:
        self.steps += 1
        request = pb.LeaseProducerIdRequest(
            topic=self.runner.name, topic_id=self.runner.topic_id, producer_id=pid, generation=generation,
            request_id=instance_id, expire_ms=8 * PERIOD_MS_MAX,
        )  # fmt: skip
        return await self.channel.call(LEASE_PRODUCER_ID, request, timeout_ms=10_000)

    def _refused(self, expected: Verdict | list[Verdict], error: OncelogError) -> None:
        assert isinstance(expected, Verdict)
        assert type(error) is ERRORS[expected]
        self.verdicts[expected] += 1

    async def lease_anew(self) -> None:
        answer = await self._request(_instance_id(self.rng))
        program = Program(None, True, ProducerInstance(ProducerId(0), Generation(0)), _instance_id(self.rng))
        self._is_new(program, answer.producer_id, answer.generation)
        assert answer.last_sequence_id == -1

    async def lease(self, program: Program, proven: ProducerInstance | None) -> None:
        """Renew what is proven, or take the id over."""
        pid = program.instance.producer_id
        producer = self.topic.producers.get(pid)
        current = ProducerInstance(pid, Generation(producer.generation if producer is not None else 0))
        expected = verdict(self.topic, proven or current)
        try:
            answer = await self._request(_instance_id(self.rng), pid, proven.generation if proven is not None else 0)
        except OncelogError as error:
            self._refused(expected, error)
            return
        assert isinstance(expected, list)
        assert producer is not None
        producer.active_ms = self.serving.log.time_ms
        if proven is None:
            producer.generation += 1
            program.session = None
            program.instance = ProducerInstance(pid, Generation(producer.generation))
        assert (answer.producer_id, answer.generation, answer.last_sequence_id) == (*program.instance, producer.mark)

    # --- time and owners ----------------------------------------------------------------------------------------------

    async def pass_time(self) -> None:
        """Some hours, in which nothing may expire; or so long that all expires that is idle."""
        leased = {pid: each for pid, each in self.topic.producers.items() if each.leased}
        connected = {each.instance.producer_id for each in self.programs if each.session is not None}
        idle = {pid: each for pid, each in leased.items() if pid not in connected}
        short_ms = self.rng.randint(1, 4) * PERIOD_MS_MAX
        now_ms = self.serving.log.time_ms
        lasting = self.rng.random() < 0.4 or any(
            now_ms + short_ms + PERIOD_MS_MAX - each.active_ms >= LIFETIME_MS for each in leased.values()
        )
        self.steps += 1
        await self._pass(3 * LIFETIME_MS if lasting else short_ms)
        if lasting:
            for pid in idle:
                del self.topic.producers[pid]
                self.topic.expired[pid] = None
        for pid in connected:
            self.topic.producers[pid].active_ms = self.serving.log.time_ms
        for program in [each for each in self.programs if each.instance.producer_id in self.topic.expired]:
            self.programs.remove(program)
            self._is_over(program, program.instance)
        state = self.serving.log.table.state
        assert set(state.producers) == set(self.topic.producers)

    async def _pass(self, ms: int) -> None:
        log, expiry = self.serving.log, self.serving.openings.expiry
        until_ms = log.time_ms + ms
        awaits, producers = self.serving.openings.returning.awaits, log.table.state.producers
        await until(lambda: not awaits(ProducerId(0)), DEADLINE_S, waiting_for="holders to have come back")

        def leased() -> bool:
            return any(each.lifetime_ms for each in producers.values())

        while log.time_ms < until_ms and leased():
            await until(lambda: (log.open and expiry._period_ms) or not leased(), DEADLINE_S, waiting_for="a period")
            self.runner.post(TopicTimerFired(expiry._key))
            await until(lambda: log.table.state.time_ms == log.time_ms, DEADLINE_S, every_s=0.001, waiting_for="time")

    async def take_over(self) -> None:
        self.steps += 1
        topic_id = self.runner.topic_id
        connected = {each.session for each in self.programs if each.session is not None}
        await self.world.place(topic_id, self.runner.core.ownership.me)
        self.world.topics.assign(topic_id)
        await self.runner.progress.until_ended()
        self.world.topics.assign(topic_id)
        runner = self.world.topics.find(topic_id)
        assert runner is not None
        await runner.progress.until_serving()
        while connected:
            connected -= {each.session for each in (await anext(aiter(self.stream))).ended}
        for program in self.programs:
            program.session = None
        self.runner = runner


def _is_due(sent: Sent) -> bool:
    """Whether the answer depends on no write in flight."""
    expected = sent.expected
    return isinstance(expected, list) and all(each in (Verdict.DUPLICATE, Verdict.UNVERIFIED) for each in expected)


def _wanted(
    expected: Verdict, written: Written | None, place: Place | None, at: int
) -> tuple[ResultKind, Position | None, int]:
    if expected is Verdict.FRESH:
        assert written is not None
        return ResultKind.STORED, written.position, at
    if place is None or (expected is Verdict.UNVERIFIED):
        return _KINDS[expected], None, 0
    return _KINDS[expected], place.written.position, place.offset


def _encoded(instance: ProducerInstance, ids: Sequence[int]) -> bytes:
    return encode_batch(
        encode_values([b""] * len(ids)), producer_id=instance.producer_id, generation=instance.generation,
        first=ids[0], last=ids[-1], count=len(ids), publish_time_ms=0, checksum=crc32c, deltas=encode_deltas(ids),
    )  # fmt: skip


def _instance_id(rng: random.Random) -> InstanceId:
    return InstanceId(rng.randbytes(INSTANCE_ID_BYTES))


async def run_history(directory: Path, seed: int, steps: int) -> Counter[Verdict]:
    """Returns the verdicts that occurred. Raises AssertionError where the owner and the model differ, or an answer does
    not come."""
    async with owner_world(directory, LIMITS, deadline_s=HISTORY_S) as (world, channel):
        history = History(world, channel, await world.serve("reference"), seed)
        await history.run(steps)
        return history.verdicts
