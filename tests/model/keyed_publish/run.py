"""One run: clients with few keys, processes that crash, pause and are stopped, and an oracle.

    faults         requests are delayed, refused, lost, performed without an answer or long after; processes crash and
                   are stopped; Redis restarts or forgets; leases expire
    quiet          nothing fails any more. What was sent and is still on its way is performed or is lost
    settled        a new process repeats each key until it is answered

Oracle
- The messages of a key are stored at most once, and once if a request with the key was answered.
- An answer names an entry that is in the log when it is given, and that has the messages of this request. All answers
  to a key are equal; only a position may be unknown.
- A key never answers a request with other messages.
- Unknown is not missing: every key that is kept is answered once faults have stopped. After Redis has forgotten, keys
  are refused for one window, and served after it.
"""

import random
from asyncio import CancelledError, Task
from dataclasses import dataclass, field
from typing import Any, cast

from oncelog.core.errors import IdempotencyKeyReused, IdempotencyUnavailable, InvalidArgument, OncelogError
from oncelog.core.names import parse_topic
from oncelog.metadata.http_publish.keyed_producers import KeyedProducers
from oncelog.metadata.http_publish.keyed_publish import KeyedAnswer, KeyedPublishes
from oncelog.metadata.http_publish.publish_body import Messages
from oncelog.metadata_store.keys.idempotency_keys import KeyStore
from tests.model.keyed_publish.process_loop import ProcessLoop
from tests.model.keyed_publish.servers import (
    INVALID,
    Client,
    Datasets,
    Log,
    Lookup,
    Policies,
    Redis,
    RedisConnection,
    Request,
    Wire,
)

TOPIC = parse_topic("persistent://public/default/orders")
WINDOW_MS = 3_600_000
STEPS = 500
#: After faults, in which a key must be answered: a lease expires after three of them.
REPEATS_MAX = 20
REPEAT_MS = 1_500


class Problem(AssertionError):
    """The oracle has found something."""


@dataclass(eq=False)
class Post:
    """One request of a client."""

    key: str
    values: tuple[bytes, ...]
    task: "Task[KeyedAnswer] | None" = None


class Process:
    """One metadata service: the code under test, on a loop of its own."""

    def __init__(self, run: "KeyedRun") -> None:
        self.loop = ProcessLoop(lambda: run.now_ms)  # type: ignore[abstract]
        server = RedisConnection(run.wire, run.redis, self, lambda: run.now_ms)
        self.keys = KeyStore(server, cast("Any", run.datasets), window_ms=WINDOW_MS, now_ms=lambda: run.now_ms)
        client, lookup = Client(run.wire, run.log, self), Lookup()
        self.producers = KeyedProducers(cast("Any", client), cast("Any", lookup), self.keys, producers_max=4)
        self.publishes = KeyedPublishes(self.keys, self.producers, cast("Any", Policies(run.log)))
        self.tasks: list[Task[Any]] = [self.loop.start(self.producers.run())]

    def post(self, post: Post) -> None:
        messages = Messages(post.values, *([[None] * len(post.values)] * 3))
        post.task = self.loop.start(self.publishes.publish(TOPIC, post.key, messages, ""))
        self.tasks.append(post.task)


@dataclass
class KeyedRun:
    """forgot: Redis has forgotten, so that only keys used after the window are kept."""

    seed: int
    now_ms: int = 1_000_000
    redis: Redis = field(default_factory=Redis)
    wire: Wire = field(default_factory=Wire)
    datasets: Datasets = field(default_factory=Datasets)
    forgot: bool = False
    answers: dict[str, KeyedAnswer] = field(default_factory=dict)
    #: {fault or outcome: how often}
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.log = Log(deduplicates=self.seed % 8 != 7)
        self.forgets = self.seed % 4 == 3
        #: chance of a fault, per step; in some runs only delays happen
        self.faulty = self.chance.choice((0.0, 0.15, 0.3))
        self.live = [Process(self) for _ in range(self.chance.choice((1, 2, 3)))]
        self.crashed: list[Process] = []
        self.waiting = [self._post() for _ in range(self.chance.randrange(6, 24))]
        self.posts: list[Post] = []

    def _post(self) -> Post:
        key = self.chance.choice(("a", "b", "c", "d"))
        other = self.chance.random() < 0.15
        values = [f"{key}{'-other' if other else ''}-{number}".encode() for number in range(1 + ord(key) % 3)]
        return Post(key, (*values, INVALID) if key == "d" and other else tuple(values))

    def run(self) -> None:
        """Raises Problem."""
        try:
            for _ in range(STEPS):
                self._step()
            self._quiet()
            self._settle()
        finally:
            self._end()

    # --- faults ---

    def _note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def _step(self) -> None:
        act = self.chance.random()
        if self.chance.random() < self.faulty * 0.15:
            self._process_fault()
        elif act < 0.1 and self.waiting and self.live:
            post = self.waiting.pop()
            self.posts.append(post)
            self.chance.choice(self.live).post(post)
        elif act < 0.15:
            self.now_ms += self.chance.choice((1, 50, 400, 2_500))
        elif act < 0.2 and self.wire.late:
            self._late()
        elif self.wire.waiting:
            self._request(self.chance.choice(self.wire.waiting))
        self._run_processes()

    def _request(self, request: Request) -> None:
        if request.line is not None:
            request = next(each for each in self.wire.waiting if each.line is request.line)
        self.wire.waiting.remove(request)
        fault = self.chance.choice(("refused", "unanswered", "lost")) if self.chance.random() < self.faulty else ""
        if not fault:
            self._answer(request, _performed(request))
            return
        self._note(fault)
        if fault == "unanswered":
            _performed(request)
        elif fault == "lost" and request.writes:
            self.wire.late.append(request)
        # A write to Redis is the only request whose result tells "refused" from "unknown".
        tells = fault == "refused" and not isinstance(request.lost, OncelogError)
        self._answer(request, IdempotencyUnavailable("refused before it ran") if tells else request.lost)

    def _answer(self, request: Request, result: Any) -> None:
        request.settle(result)
        request.answer = None
        if request.line is None or not isinstance(result, OncelogError):
            return
        request.line.failure = result
        for other in [each for each in self.wire.waiting if each.line is request.line]:
            self.wire.waiting.remove(other)
            other.settle(result)
            self.wire.late.append(other)

    def _late(self) -> None:
        """A request arrives that nobody waits for any more, or it never does."""
        request = self.chance.choice(self.wire.late)
        if request.line is not None:
            request = next(each for each in self.wire.late if each.line is request.line)
        self.wire.late.remove(request)
        if self.chance.random() < 0.7:
            self._note("late")
            _performed(request)

    def _process_fault(self) -> None:
        fault = self.chance.choice(("crash", "stop", "cancel", "restart of Redis", "forget"))
        if fault == "restart of Redis":
            self.redis.restart()
        elif fault == "forget":
            if not self.forgets or self.forgot or not self.redis.writes:
                return
            self.redis.forget()
            self.forgot = True
        elif fault == "cancel":
            running = [post.task for post in self.posts if post.task is not None and not post.task.done()]
            if not running:
                return
            self.chance.choice(running).cancel()
        else:
            process = self.chance.choice(self.live)
            if fault == "crash":
                self._crash(process)
            else:
                self._stop(process)
            self.live.append(Process(self))
        self._note(fault)

    def _crash(self, process: Process) -> None:
        self.live.remove(process)
        self.crashed.append(process)
        for request in [each for each in self.wire.waiting if each.owner is process]:
            self.wire.waiting.remove(request)
            request.answer = None
            if request.writes:
                self.wire.late.append(request)

    def _stop(self, process: Process) -> None:
        """As `HttpPublishService.close`; then it ends, whether or not that was finished."""
        for task in process.tasks:
            task.cancel()
        process.loop.start(process.producers.close())
        process.loop.step()
        self._oracle()
        self._crash(process)

    def _run_processes(self) -> None:
        for process in self.live:
            process.loop.step()
            if process.loop.problems:
                raise Problem(process.loop.problems[0])
        self._oracle()

    # --- after faults ---

    def _quiet(self) -> None:
        self.faulty = 0.0
        while self.wire.late:
            self._late()
        self._drain()

    def _drain(self) -> None:
        for _ in range(5_000):
            if not self.wire.waiting:
                return
            self._request(self.wire.waiting[0])
            self._run_processes()
        raise Problem("requests never end")

    def _settle(self) -> None:
        """Each key is repeated, with all messages that were sent with it; those of one request are the key's."""
        self.live = [Process(self)]
        used = {(post.key, post.values) for post in self.posts}
        if self.forgot:
            self._check_window()
            return
        for key, values in sorted(used):
            end = self._repeat(key, values)
            if isinstance(end, InvalidArgument) and INVALID not in values and not isinstance(end, IdempotencyKeyReused):
                raise Problem(f"valid messages were refused: {end}")
        for key in sorted({key for key, _ in used}):
            if not self._stored(key) and not any(INVALID in values for each, values in used if each == key):
                raise Problem(f"the messages of key {key} are missing")

    def _repeat(self, key: str, values: tuple[bytes, ...]) -> OncelogError | None:
        error: BaseException | None = None
        for _ in range(REPEATS_MAX):
            post = Post(key, values)
            self.posts.append(post)
            self.live[0].post(post)
            task = post.task
            self._run_processes()
            self._drain()
            assert task is not None
            if not task.done():
                raise Problem("a request never ends")
            error = task.exception()
            if error is None or isinstance(error, InvalidArgument):
                return cast("OncelogError | None", error)
            self.now_ms += REPEAT_MS
        raise Problem(f"key {key} is never answered: {error!r}")

    def _check_window(self) -> None:
        post = Post("new", (b"new",))
        self.live[0].post(post)
        self._run_processes()
        self._drain()
        assert post.task is not None
        if not isinstance(post.task.exception(), IdempotencyUnavailable):
            raise Problem("keys are served after Redis has forgotten")
        self.now_ms += WINDOW_MS + 1
        self._repeat("new", (b"new",))

    # --- oracle ---

    def _stored(self, key: str) -> list[int]:
        prefix = f"{key}-".encode()
        return [at for at, (_, _, values) in enumerate(self.log.entries) if values[0].startswith(prefix)]

    def _oracle(self) -> None:
        for key in "abcd":
            if len(self._stored(key)) > 1:
                raise Problem(f"the messages of key {key} are stored twice")
        for post in [each for each in self.posts if each.task is not None and each.task.done()]:
            task, post.task = post.task, None
            self._check_end(post, cast("Task[KeyedAnswer]", task))

    def _check_end(self, post: Post, task: "Task[KeyedAnswer]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, OncelogError):
            self._note(error.code)
            return
        if error is not None:
            raise Problem(repr(error)) from error
        answer = task.result()
        self._note("replayed" if answer.replayed else "answered")
        claim = answer.claim
        entries = [at for at, (name, first, _) in enumerate(self.log.entries) if (name, first) == claim_of(claim)]
        if len(entries) != 1:
            raise Problem(f"key {post.key} is answered with a claim that is stored {len(entries)} times: {claim}")
        at = entries[0]
        if self.log.entries[at][2] != post.values:
            raise Problem(f"key {post.key} is answered with the messages {self.log.entries[at][2]}")
        if answer.message_id not in ("", f"entry {at}"):
            raise Problem(f"key {post.key} is answered with {answer.message_id}, and is stored at {at}")
        before = self.answers.setdefault(post.key, answer)
        if before.claim != claim:
            raise Problem(f"key {post.key} has two answers")

    def _end(self) -> None:
        """Only now, what was interrupted is closed, behind ports that refuse everything."""
        self.wire.over = True
        for process in (*self.crashed, *self.live):
            for task in process.tasks:
                if not task.done():
                    task.cancel()
            process.loop.step()
            for request in [each for each in self.wire.waiting if each.owner is process]:
                request.settle(CancelledError())
            process.loop.step()


def claim_of(claim: Any) -> tuple[str, int]:
    return claim.producer_name, claim.first


def _performed(request: Request) -> Any:
    try:
        return request.perform()
    except OncelogError as error:
        return error


def problem_of(seed: int) -> str | None:
    """What the oracle has found in the run of this seed; None: nothing."""
    try:
        KeyedRun(seed).run()
    except Problem as problem:
        return str(problem)
    return None
