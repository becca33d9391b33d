"""`prove`: whether the effects of a function happen once, on the test's own store, whatever fails around it.

Each step is one run over all messages with a fault at every message; the store and the log must end as a run without
faults ends. The source of effects and its core are the real ones, and so is the store; the log is a double.

    claim           killed when the store is claimed, before anything is applied
    apply           killed before the transaction
    function        killed when the function has run, before the commit
    commit          killed behind the commit, before anything is acknowledged
    lost answer     the commit's answer is lost, and the process goes on
    rollback        the function has run, and the store rolls back; then it runs again
    zombie claim    stopped before it claims, and woken when a successor has claimed and applied
    zombie apply    stopped before it applies, and woken when a successor has applied
    redo            stopped in the middle, before it applies; the data is emptied, the log seeks to the first message
                    with redo, and a successor begins; when it comes to the same position, the former one wakes up
    restored        at the end the store is restored to the middle
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, NamedTuple, cast

from oncelog.client.client import AsyncClient
from oncelog.client.values.messages import Message
from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.testing.messages import Content
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.function_run import FunctionFailedError
from oncelog_effects.processes import Process
from oncelog_effects.source import EffectsSource
from oncelog_effects.store import ClaimLost, EffectsStore, SourceNames, StoreInCluster
from oncelog_effects.testing.double_log import DoubleConsumer, DoubleLog
from oncelog_effects.testing.prove_stores import under_test
from oncelog_effects.testing.store_under_test import Restore, StoreUnderTest

TIMEOUT_S = 60.0
MESSAGES_MAX = 100
#: How long a function may run on when a run is over.
END_S = 1.0
KILLS = ("claim", "apply", "function", "commit")
STEPS = (*KILLS, "lost answer", "rollback", "zombie claim", "zombie apply", "redo", "restored")
TOPIC = "persistent/public/default/prove"
#: What `state` is, or how it is read.
State = str | Callable[[], Any]


class ProofFailed(AssertionError):
    """The effects did not happen once; or the function, the state or the reset are of no use for a proof."""


class Proof(NamedTuple):
    """steps: those that were tried. state: as it was after each of them."""

    steps: tuple[str, ...]
    state: Any


class _KilledError(BaseException):
    """Ends a source as the end of its process does: nothing of it comes behind this."""


def prove(
    process: Process[Any],
    messages: Sequence[Message],
    *,
    state: State | None = None,
    reset: State | Sequence[str] | None = None,
    backup: Callable[[], Restore] | None = None,
    timeout: float = TIMEOUT_S,
) -> Proof:
    """Run a function over messages on its own store, once without faults and once for each step with some, and compare
    what it has written.

        proof = prove(book, messages([b'{"cents": 5}'], keys=["order-1"]), state="SELECT * FROM invoices ORDER BY 1",
                      reset="DELETE FROM invoices")

    Nothing outside is needed: no cluster, and no store but the function's, which must be one for tests.

    Args:
        process: made by `@oncelog.process`.
        messages: 1 to 100, as those of `oncelog.testing.messages`.
        state: what the function has written, in an order that does not change: a statement of SQL, or a function that
            returns it (or is `async`). None for MemoryEffects and FileEffects: their content.
        reset: what empties it before each run: statements of SQL, or a function. Not needed for the same two.
        backup: a function that keeps the store and the application's data, and returns one that brings them back. None:
            for SQLite in a file, MemoryEffects and FileEffects that is known; otherwise "restored" is left out.
        timeout: seconds for each run.

    Raises ProofFailed, with the step and both states; InvalidArgument.
    """
    return asyncio.run(prove_async(process, messages, state=state, reset=reset, backup=backup, timeout=timeout))


async def prove_async(
    process: Process[Any],
    messages: Sequence[Message],
    *,
    state: State | None = None,
    reset: State | Sequence[str] | None = None,
    backup: Callable[[], Restore] | None = None,
    timeout: float = TIMEOUT_S,
) -> Proof:
    """As `prove`, in a running event loop."""
    if not 1 <= len(messages) <= MESSAGES_MAX:
        raise InvalidArgument(f"a proof takes 1 to {MESSAGES_MAX} messages", field="messages", limit=MESSAGES_MAX)
    if isinstance(process.effects, StoreInCluster):
        raise InvalidArgument("effects in other topics are proved with a cluster of their own", field="process")
    store = under_test(process.effects, state, reset, backup)
    proof = _Proving(process, store, [Content.of(message) for message in messages], timeout)
    try:
        return await proof.run()
    finally:
        await store.close()


class _Proving:
    def __init__(
        self, process: Process[Any], store: StoreUnderTest, contents: Sequence[Content], timeout_s: float
    ) -> None:
        self._process = process
        self._store = store
        self._contents = contents
        self._timeout_s = timeout_s

    async def run(self) -> Proof:
        await self._store.reset()
        empty = await self._store.state()
        wanted = await self._state_after("no fault")
        tried: list[str] = []
        for step in STEPS:
            if step == "restored" and not self._store.is_restorable:
                continue
            await self._store.reset()
            if (found := await self._store.state()) != empty:
                raise ProofFailed(f"reset does not bring back the state of the beginning: {found!r} is not {empty!r}")
            found = await self._state_after(step)
            if found != wanted:
                raise ProofFailed(
                    f"the effects do not happen once. Step {step!r}: the state is {found!r}. Without faults it is "
                    f"{wanted!r}. Does the function write with something else than what it is given?"
                )
            tried.append(step)
        return Proof(tuple(tried), wanted)

    async def _state_after(self, step: str) -> Any:
        run = _Run(self._process, self._store, DoubleLog(self._contents), step)
        try:
            async with asyncio.timeout(self._timeout_s):
                await run.to_the_end()
        except TimeoutError:
            raise ProofFailed(f"step {step!r} has not ended within {self._timeout_s:g} s: {run.trouble}") from None
        return await self._store.state()


class _Run:
    """One run over all messages."""

    def __init__(self, process: Process[Any], store: StoreUnderTest, log: DoubleLog, step: str) -> None:
        self.step = step
        self.log = log
        self.store = store
        #: messages at which the fault has happened
        self.faulted: set[int] = set()
        #: the transaction of this position is committed: where the run is
        self.position = 0
        self.changed = asyncio.Event()
        self.error: Exception | None = None
        #: who was stopped before a redo has written behind it
        self.unrefused = False
        self.restore: Restore | None = None
        #: who is stopped waits for it
        self.woken = asyncio.Event()
        self.stopped = False
        self._process = process
        self._sources: list[tuple[EffectsSource[Any], asyncio.Task[None], _SteppedStore]] = []

    @property
    def trouble(self) -> str:
        return "; ".join(source.status.trouble or f"at index {source.status.position}" for source, *_ in self._sources)

    async def to_the_end(self) -> None:
        try:
            await self._reach_end()
            if self.restore is not None:
                restore, self.restore = self.restore, None
                await self._end_sources()
                await _called(restore)
                self.position = 0
                await self._reach_end()
        finally:
            await self._end_sources()

    async def _reach_end(self) -> None:
        task = self._begin()
        while self.position < self.log.end:
            waiting = asyncio.ensure_future(self.changed.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self.changed.clear()
            if self.error is not None:
                raise ProofFailed(f"the function raises without any fault: {self.error!r}") from self.error
            if self.unrefused:
                raise ProofFailed(
                    f"step {self.step!r}: a process that was stopped before the redo has written after it. The store "
                    "must refuse an apply whose claim is not the newest one"
                )
            if self.stopped:
                self.stopped = False
                if self.step == "redo":
                    await self.store.empty()
                    self.log.redo()
                task = self._begin()  # the successor of the one that is stopped
            elif task.done():
                error = task.exception()
                if not isinstance(error, _KilledError):
                    raise ProofFailed(f"step {self.step!r} ends with {error!r}") from error
                task = self._begin()
        await self.wake_zombies()

    async def wake_zombies(self) -> None:
        """They must be refused."""
        zombies = [stepped for _, _, stepped in self._sources if stepped.is_zombie]
        self.woken.set()
        for zombie in zombies:
            await zombie.refused.wait()

    def _begin(self) -> "asyncio.Task[None]":
        stepped = _SteppedStore(self)

        async def attach(store_id: str, dead_letters: bool) -> DoubleConsumer:
            stepped.consumer = await self.log.attach(store_id, dead_letters)
            return stepped.consumer

        source = self._process.source(cast("AsyncClient", self.log), cast("Any", attach), stepped, TOPIC)
        task = asyncio.ensure_future(source.run())
        self._sources.append((source, task, stepped))
        return task

    async def _end_sources(self) -> None:
        tasks = [task for _, task, _ in self._sources]
        for task in tasks:
            task.cancel()
        if tasks:
            _, running = await asyncio.wait(tasks, timeout=END_S)
            for task in running:
                task.cancel()  # the first one lets a transaction end
        await asyncio.gather(*tasks, return_exceptions=True)


class _SteppedStore:
    """The store, as one process sees it, with the faults of the step."""

    def __init__(self, run: _Run) -> None:
        self.consumer: DoubleConsumer | None = None
        self.is_zombie = False
        self.refused = asyncio.Event()
        self._run = run
        self._inner: EffectsStore[Any] = run.store.effects

    async def store_id(self) -> str:
        return await self._inner.store_id()

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        await self._stop_at("zombie claim", self._run.position)
        try:
            stored = await self._inner.claim(source, names, decide)
        except BaseException:
            self._note_refusal()
            raise
        self._reached(stored)
        self._kill_at("claim", stored.position)
        return stored

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[Any], Awaitable[None] | None] | None,
    ) -> None:
        position = claimed.position
        await self._stop_at("zombie apply", position)
        await self._stop_at("redo", position)
        if self._run.step == "redo" and not self.is_zombie and position in self._run.faulted:
            await self._run.wake_zombies()  # its position is right again, and its claim is not
        self._kill_at("apply", position)
        try:
            await self._inner.apply(source, claimed, following, None if run is None else self._stepped(run, position))
        except ClaimLost:
            self._note_refusal()
            raise
        if self._run.step == "restored" and self._run.restore is None and position >= self._run.log.end // 2:
            self._run.restore = await self._run.store.backup()
        self._reached(following)
        self._kill_at("commit", position)
        if self._is_due("lost answer", position):
            raise StoreUnavailable("the answer to the commit is lost: this is a step of a proof")

    def _stepped(
        self, run: Callable[[Any], Awaitable[None] | None], position: int
    ) -> Callable[[Any], Awaitable[None] | None]:
        def end() -> None:
            self._kill_at("function", position)
            if self._is_due("rollback", position):
                raise StoreUnavailable("the transaction is rolled back: this is a step of a proof")

        def run_stepped(connection: Any) -> Awaitable[None] | None:
            try:
                result = run(connection)
            except Exception as error:
                self._failed(error)
                raise
            if isawaitable(result):
                return finish(result)
            end()
            return None

        async def finish(result: Awaitable[None]) -> None:
            try:
                await result
            except Exception as error:
                self._failed(error)
                raise
            end()

        return run_stepped

    # --- faults -------------------------------------------------------------------------------------------------------

    def _is_due(self, step: str, position: int) -> bool:
        """Once for each message."""
        run = self._run
        if run.step != step or position in run.faulted or position >= run.log.end:
            return False
        run.faulted.add(position)
        return True

    def _kill_at(self, step: str, position: int) -> None:
        if self._is_due(step, position):
            if self.consumer is not None:
                self.consumer.killed = True
            raise _KilledError

    async def _stop_at(self, step: str, position: int) -> None:
        """Once in a run, at the middle: nobody else goes on until all messages are done."""
        run = self._run
        if run.step == step and not run.faulted and position >= (run.log.end - 1) // 2:
            run.faulted.add(position)
            run.stopped = self.is_zombie = True
            run.changed.set()
            await run.woken.wait()

    def _failed(self, error: Exception) -> None:
        cause = error.error if isinstance(error, FunctionFailedError) else error
        if isinstance(cause, Exception):  # a cancellation may be the end of the run
            self._run.error = cause
        self._wake()

    def _reached(self, stored: StoredPosition) -> None:
        if self.is_zombie:
            self._note_refusal()  # it was not refused: the states will differ, unless everything is redone
            self._run.unrefused = self._run.step == "redo"
        self._run.position = stored.position
        self._wake()

    def _note_refusal(self) -> None:
        if self.is_zombie:
            self.refused.set()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._run.changed.set)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._run.store.loop


async def _called(function: Callable[[], Any]) -> Any:
    result = function()
    return await result if isawaitable(result) else result
