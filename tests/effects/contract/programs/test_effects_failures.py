"""Functions that fail in unusual ways, in a process whose messages take effect in a store: each failure is an attempt
of its message, and none ends the work of its topic."""

import asyncio
import concurrent.futures
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import oncelog
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.core.delivery.store_binding.events import REASON_MAX
from oncelog.core.names import parse_topic
from oncelog.runtime.tasks import CancelledByNobody
from oncelog_effects import FileEffects, Output, Process, RedisEffects, SqlEffects, TopicEffects, batches
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.mirror import mirror as mirrors
from oncelog_effects.mirror.topics import Choice
from oncelog_effects.processes import run_processes
from oncelog_effects.store import SourceNames
from oncelog_effects.testing import MemoryEffects
from tests.cluster.until import until
from tests.contract.stores.redis_process import RedisProcess

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 60.0


def cancelled_future() -> None:
    """As that of an executor that was shut down with cancel_futures."""
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    future.cancel()
    future.result()


def raises(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


WAYS: dict[str, Callable[[], None]] = {
    "cancelled future": cancelled_future,
    "CancelledError": raises(asyncio.CancelledError("of a library")),
    "TimeoutError": raises(TimeoutError("timed out")),
    "StopIteration": raises(StopIteration("no more")),
    "InvalidStateError": raises(concurrent.futures.InvalidStateError("done")),
}
#: Each with functions that are `async`, or not, or both.
STORES = [
    ("sqlite", False), ("sqlite-async", True), ("redis", False),
    *((kind, is_async) for kind in ("file", "memory", "topic") for is_async in (False, True)),
]  # fmt: skip


@asynccontextmanager
async def store_of(kind: str, directory: Path) -> AsyncIterator[Any]:
    match kind:
        case "sqlite":
            engine = create_engine(f"sqlite:///{directory}/effects.db")
            yield SqlEffects(engine)
            engine.dispose()
        case "sqlite-async":
            async_engine = create_async_engine(f"sqlite+aiosqlite:///{directory}/effects.db")
            yield SqlEffects(async_engine)
            await async_engine.dispose()
        case "redis":
            with RedisProcess.running(directory / "redis") as server, redis.Redis(port=server.port) as client:
                yield RedisEffects(client)
        case "file":
            yield FileEffects(directory / "effects")
        case "memory":
            yield MemoryEffects()
        case _:
            yield TopicEffects(["checked"])


def failing(way: Callable[[], None], seen: list[bytes], *, is_async: bool, gives: bool) -> Callable[..., Any]:
    """A function that fails once for each message. gives: it returns outputs."""

    def once(message: oncelog.Message) -> Any:
        first = message.value not in seen
        seen.append(message.value)
        if first:
            way()
        return [Output("checked", message.value)] if gives else None

    def run(message: oncelog.Message, *_: object) -> Any:
        return once(message)

    async def run_async(message: oncelog.Message, *_: object) -> Any:
        return once(message)

    return run_async if is_async else run


async def each_takes_effect(client: oncelog.AsyncClient, process: Process[Any], count: int) -> None:
    running = asyncio.ensure_future(run_processes(client, [process]))

    def done() -> bool:
        assert not running.done(), running
        return [status.position for status in process.statuses.values()] == [count]

    try:
        await until(done, DEADLINE_S, waiting_for="every message to have taken effect")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.hazard("cancelled-by-nobody")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "is_async"), STORES)
async def test_function_that_fails_in_an_unusual_way_is_tried_again(
    client: oncelog.AsyncClient, tmp_path: Path, kind: str, way: str, *, is_async: bool
) -> None:
    """Whatever asyncio would make of its error."""
    await (await client.create_producer("flights")).send_many([b"0", b"1"])
    seen: list[bytes] = []
    function = failing(WAYS[way], seen, is_async=is_async, gives=kind == "topic")
    async with store_of(kind, tmp_path) as effects:
        await each_takes_effect(client, Process(function, "flights", subscription="billing", effects=effects), 2)
    assert seen == [b"0", b"0", b"1", b"1"]


class _CancelsOnce(MemoryEffects):
    """A store whose driver has something cancelled, once at each step."""

    def __init__(self) -> None:
        super().__init__()
        self._left = {"store_id", "claim", "apply"}

    def _step(self, step: str) -> None:
        if step in self._left:
            self._left.remove(step)
            raise asyncio.CancelledError(step)

    async def store_id(self) -> str:
        self._step("store_id")
        return await super().store_id()

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        self._step("claim")
        return await super().claim(source, names, decide)

    async def apply(self, source: Source, claimed: StoredPosition, following: StoredPosition, run: Any) -> None:
        await super().apply(source, claimed, following, run)
        self._step("apply")


@pytest.mark.hazard("cancelled-by-nobody")
async def test_step_of_the_store_that_was_cancelled_is_done_again(client: oncelog.AsyncClient) -> None:
    """Its outcome is unknown, and no attempt of the message."""
    await (await client.create_producer("flights")).send_many([b"0", b"1"])

    def count(message: oncelog.Message, data: dict[Any, Any]) -> None:
        data.setdefault("seen", []).append(message.value)

    store = _CancelsOnce()
    process: Process[Any] = Process(count, "flights", subscription="billing", effects=store, max_attempts=1)
    await each_takes_effect(client, process, 2)
    (status,) = process.statuses.values()
    assert (store.data, status.dead_letters) == ({"seen": [b"0", b"1"]}, 0)


@pytest.mark.hazard("cancelled-by-nobody")
async def test_process_that_ends_by_a_cancellation_of_others_raises(
    client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose tasks end without an error would end with exit code 0."""

    async def cancelled(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(sys.modules[run_processes.__module__], "first_indexes", cancelled)
    process: Process[Any] = Process(lambda *_: None, "flights", subscription="billing", effects=MemoryEffects())
    with pytest.raises(CancelledByNobody, match="work of effects billing was cancelled"):
        await run_processes(client, [process])


async def test_block_of_a_loop_that_is_cancelled_alone_rolls_back(client: oncelog.AsyncClient, tmp_path: Path) -> None:
    """As by a time limit for the block: the loop goes on, and gets its messages again."""
    await (await client.create_producer("flights")).send_many([b"0", b"1"])
    sizes: list[int] = []
    async with (
        store_of("sqlite-async", tmp_path) as effects,
        batches(client, "flights", subscription="billing", effects=effects) as source,
    ):
        async for batch in source:
            sizes.append(len(batch))
            try:
                async with asyncio.timeout(None) as limit, batch:
                    if len(sizes) == 1:
                        limit.reschedule(0)
                        await asyncio.get_running_loop().create_future()
            except TimeoutError:
                assert not batch.committed
            if batch.committed and batch.messages[-1].index == 1:
                break
    assert sizes == [2, 1, 1]


@pytest.mark.hazard("cancelled-by-nobody")
async def test_topic_is_mirrored_although_its_mirror_was_cancelled_by_others(
    client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not be copied any more, and nothing would say so."""
    monkeypatch.setattr(mirrors, "TRY_AGAIN_S", 0.01)
    calls = 0
    again = asyncio.Event()

    async def cancelled(*_: object) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise asyncio.CancelledError
        again.set()
        await asyncio.get_running_loop().create_future()
        return ""

    monkeypatch.setattr(mirrors, "prepared", cancelled)
    await (await client.create_producer("flights")).send(b"0")
    mirror = mirrors.Mirror(client, client, Choice((parse_topic("flights"),)))
    running = asyncio.ensure_future(mirror.run())
    await asyncio.wait_for(again.wait(), DEADLINE_S)
    (topic,) = mirror.topics.values()
    assert "was cancelled, and this program did not ask for it" in topic.trouble
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _parses(message: oncelog.Message) -> None:
    int(b"x" + message.value)


def _decodes(message: oncelog.Message) -> None:
    message.key.decode()  # type: ignore[union-attr]


@pytest.mark.parametrize("is_async", [False, True])
async def test_log_has_the_traceback_of_a_new_error_and_one_line_of_a_repetition(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    """The reason alone names neither file nor line. The traceback begins in the function, and the line says what else
    ends the attempts."""
    await (await client.create_producer("flights")).send(b"0")
    ways = [_decodes, _decodes, _decodes, _parses, _decodes]

    def fail(message: oncelog.Message, _: dict[Any, Any]) -> None:
        if ways:
            ways.pop(0)(message)

    async def fail_async(message: oncelog.Message, _: dict[Any, Any]) -> None:
        if ways:
            ways.pop(0)(message)

    function = fail_async if is_async else fail
    process: Process[Any] = Process(function, "flights", subscription="billing", effects=MemoryEffects())
    await each_takes_effect(client, process, 1)
    lines = [record for record in caplog.records if record.name == "oncelog_effects.source"]
    assert len(lines) == 5
    assert [record.exc_info is not None for record in lines] == [True, False, False, True, False]
    assert "for ever" in lines[1].getMessage()
    assert "oncelog admin subscriptions skip public/default/flights billing --count 1" in lines[1].getMessage()
    assert lines[1].getMessage().endswith("AttributeError: 'NoneType' object has no attribute 'decode'")
    names = [frame.name for frame in traceback.extract_tb(lines[0].exc_info[2])]  # type: ignore[index]
    assert names == [function.__name__, "_decodes"]


async def test_message_that_is_given_up_at_once_has_its_traceback_in_the_log(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With max_attempts=1 no attempt comes before. The next message that fails in the same way has one line."""
    await (await client.create_producer("flights")).send_many([b"0", b"1"])

    async def dead_letter(*_: object) -> None:
        pass

    monkeypatch.setattr(ConsumerDriver, "dead_letter", dead_letter)
    process: Process[Any] = Process(
        lambda message, _: _decodes(message), "flights", subscription="billing", effects=MemoryEffects(), max_attempts=1
    )
    await each_takes_effect(client, process, 2)
    lines = [record for record in caplog.records if "gives up message" in record.getMessage()]
    assert [bool(record.exc_info) for record in lines] == [True, False]


class _Silent(Exception):
    """Its text cannot be asked for."""

    def __str__(self) -> str:
        raise ValueError("no text")


class _Frozen(Exception):
    """It takes no attribute, so no note either."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


ERRORS: list[tuple[Callable[[], Exception], str]] = [
    (lambda: ValueError("x" * 5_000), "ValueError: " + "x" * (REASON_MAX - len("ValueError: …")) + "…"),
    (lambda: ValueError("torn \ud83d"), "ValueError: torn \\ud83d"),
    (lambda: ValueError("\ud83d" * 1_000), "ValueError: " + "\\ud83d" * 164 + "\\ud…"),
    (_Silent, "_Silent: its text cannot be shown: __str__ raised ValueError"),
    (lambda: _Frozen("cold"), "_Frozen: cold"),
]


@pytest.mark.hazard("error-without-a-text")
@pytest.mark.parametrize(("error", "reason"), ERRORS, ids=["long", "torn", "torn and long", "silent", "frozen"])
async def test_message_is_given_up_whatever_text_its_error_has(
    client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], reason: str
) -> None:
    """And before it is, the status and the log show why it fails."""
    await (await client.create_producer("flights")).send_many([b"0", b"1"])

    def fail(message: oncelog.Message, data: dict[Any, Any]) -> None:
        if message.index == 0:
            raise error()

    letters: list[str] = []

    async def dead_letter(self: ConsumerDriver, epoch: object, generation: object, index: int, reason: str) -> None:
        letters.append(reason)

    monkeypatch.setattr(ConsumerDriver, "dead_letter", dead_letter)
    troubles: set[str] = set()
    process: Process[Any] = Process(
        fail, "flights", subscription="billing", effects=MemoryEffects(), max_attempts=2, dead_letter_topic="letters"
    )
    running = asyncio.ensure_future(run_processes(client, [process]))

    def done() -> bool:
        assert not running.done(), running
        troubles.update(status.trouble for status in process.statuses.values())
        return [status.position for status in process.statuses.values()] == [2]

    try:
        await until(done, DEADLINE_S, waiting_for="the message behind it to have taken effect")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert letters == [reason]
    assert reason in troubles
    assert len(reason) <= REASON_MAX
    assert reason.encode().decode() == reason
