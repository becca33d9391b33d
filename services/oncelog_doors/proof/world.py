"""Where histories are played: one cluster, a door on each side, and clients behind fault proxies."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import rest
from oncelog_doors.proof.children import Child, ProofFailed, module, wait_for
from oncelog_doors.proof.client_kinds import ClientKind
from oncelog_doors.proof.outcome import Outcome
from oncelog_doors.proof.proxy import FaultProxy

T = TypeVar("T")
#: How long a message is waited for.
_RECEIVE_MS = 60_000
#: A process that is paused must not lose its session meanwhile.
_SETTINGS = {"ONCELOG_SESSION_TIMEOUT_MS": "60000"}


class Side(Enum):
    """Who decides what is stored. value: the namespace of its topics."""

    PULSAR = "pulsars-rule"
    DOOR = "default"


class Door:
    """One side's door. It keeps nothing, so it is killed and started again."""

    def __init__(self, side: Side, url: str, log: Path) -> None:
        self._log = log
        serve = module("oncelog_doors", "serve", "--url", url, "--pulsar", "127.0.0.1:0", "--health-port", "0")
        self._command = serve if side is Side.DOOR else module("oncelog_doors.proof.pulsar_door", url)
        self._running = AsyncExitStack()
        self._port = 0

    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        child = await self._running.enter_async_context(Child.running("a door", self._command, self._log))
        serving = json.loads(await child.line())["serving"]
        self._port = int(serving["pulsar"].rpartition(":")[2])

    async def kill(self) -> None:
        await self._running.aclose()


class World:
    """data: of the cluster, and logs. client: of the cluster, while it runs."""

    client: AsyncClient

    def __init__(self, data: Path) -> None:
        self.data = data
        self.doors: dict[Side, Door] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls, data: Path) -> AsyncIterator["World"]:
        """Raises ProofFailed if a part of it does not start."""
        world = cls(data)
        words = ("--light", "--port=0", "--http-port=0", "-o", "json", f"--data={data / 'cluster'}")
        command = module("oncelog.cli", "standalone", *words)
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                Child.running("the cluster", command, data / "cluster.log", _SETTINGS)
            )
            stack.push_async_callback(cluster.stop)
            url = json.loads(await cluster.line())["url"]
            world.client = await stack.enter_async_context(AsyncClient(url))
            namespace = f"/admin/v2/namespaces/public/{Side.PULSAR.value}"
            await rest(world.client, "PUT", namespace, may_exist=True)
            await rest(world.client, "POST", f"{namespace}/deduplication", False)
            for side in Side:
                world.doors[side] = Door(side, url, data / f"door-{side.value}.log")
                stack.push_async_callback(world.doors[side].kill)
                await world.doors[side].start()
            yield world

    def _process(self, role: str) -> dict[str, Any]:
        status = json.loads((self.data / "cluster/standalone.json").read_text())
        found: dict[str, Any] = next(each for each in status["processes"] if each["role"] == role)
        return found

    def signal(self, role: str, number: signal.Signals) -> None:
        """To the process of this role, if it runs."""
        pid = self._process(role)["pid"]
        if pid is not None:
            os.kill(pid, number)

    async def crash(self, side: Side) -> None:
        """The door and the owner lose what is in flight; both are started again. In Pulsar both are one broker."""
        await self.doors[side].kill()
        former = self._process("owner")
        self.signal("owner", signal.SIGKILL)
        await self.doors[side].start()

        def serves_again() -> bool:
            owner = self._process("owner")
            return bool(owner["restarts"] > former["restarts"] and owner["state"] == "serving")

        await wait_for(serves_again, "owner after a crash")


class ProofClient:
    """A program with a client library of Pulsar (`clients`), behind a fault proxy of its own."""

    def __init__(self, child: Child, proxy: FaultProxy) -> None:
        self.child, self.proxy = child, proxy
        #: {tag: whether there was a receipt, its place or the error}
        self.answers: dict[str, tuple[bool, str]] = {}

    async def open(self, name: str, *, batch: int = 1, timeout_ms: int = 0) -> int:
        """Open its producer, again if that fails. Returns the last sequence id that it is told. batch: messages of
        one; 1: none. timeout_ms: of a send; 0: none."""
        while True:
            self.child.say(f"open {name} {batch} {timeout_ms}")
            word, _, rest_of_line = (await self.child.line()).partition(" ")
            if word == "opened":
                return int(rest_of_line)

    def send(self, tag: str, number: int | None = None, value: str | None = None, *, size: int = 0) -> None:
        """number: the sequence id; None: the library counts. value: the tag unless given. size: of the value, which is
        padded with blanks; in chunks, if that is too large for one message and the client sends no batches."""
        self.child.say(f"send {tag} {'-' if number is None else number} {value or tag} {size}")

    async def answer(self, *tags: str) -> None:
        """Return when these have their answers."""
        while not self.answers.keys() >= set(tags):
            match (await self.child.line()).split(" ", 2):
                case ["sent" | "failed" as word, tag, what]:
                    self.answers[tag] = word == "sent", what
                case words:
                    raise ProofFailed(f"{self.child.name} says {words} for the answer to a send")

    async def send_all(self, numbers: Sequence[int]) -> None:
        """Each number is tag, id and value; all of them are answered."""
        for number in numbers:
            self.send(str(number), number)
        await self.answer(*map(str, numbers))

    async def read(self) -> list[str]:
        self.child.say("read")
        return (await self.child.line()).split()[1:]

    async def consume(self, *, queue: int = 1000) -> None:
        """Open its consumer, of a shared subscription that begins with the first message. queue: messages that the
        library holds ready; 0: a message comes when the program asks for it."""
        await self._done("consuming", f"consume {queue}")

    async def receive(self, *values: str, within_ms: int = _RECEIVE_MS) -> list[str]:
        """What the consumer gets until these have come, or nothing more comes for so long. within_ms 0: no limit."""
        return await self._done("received", f"receive {within_ms} {' '.join(values)}")

    async def acknowledge(self, *values: str) -> None:
        """Of messages that it has received, one after the other. It waits for each receipt if the library has them."""
        await self._done("acknowledged", f"acknowledge {' '.join(values)}")

    async def close_consumer(self) -> None:
        await self._done("closed", "close")

    async def _done(self, word: str, line: str) -> list[str]:
        """Say it, and wait for its answer. Returns the words behind `word`. Raises ProofFailed for another answer."""
        self.child.say(line)
        said = (await self.child.line()).split()
        if said[0] != word:
            raise ProofFailed(f"{self.child.name} says {' '.join(said)} for the answer to {line}")
        return said[1:]


class Scene:
    """One history with one kind of client, on one side."""

    def __init__(self, world: World, side: Side, kind: ClientKind, topic: str, stack: AsyncExitStack) -> None:
        self.world, self.side = world, side
        self._kind, self._stack = kind, stack
        self._topic = f"persistent://public/{side.value}/{topic}"
        self._clients: list[ProofClient] = []

    async def client(self) -> ProofClient:
        """A new process."""
        proxy = await self._stack.enter_async_context(FaultProxy.running(self.world.doors[self.side].port))
        command = [*self._kind.command, f"pulsar://127.0.0.1:{proxy.port}", self._topic]
        log = self.world.data / f"clients-{self._kind.name}.log"
        child = await self._stack.enter_async_context(Child.running(f"a {self._kind.name} client", command, log))
        self._clients.append(ProofClient(child, proxy))
        return self._clients[-1]

    async def opened(self, name: str = "shop", *, batch: int = 1, timeout_ms: int = 0) -> ProofClient:
        """A new process with a producer."""
        client = await self.client()
        await client.open(name, batch=batch, timeout_ms=timeout_ms)
        return client

    async def pause_above(self, ranges: int) -> None:
        """PIP-299: no new messages while more ranges are acknowledged. The rule of the left side has it always."""
        if self.side is Side.DOOR:
            await rest(self.world.client, "POST", f"{self._path}/maxUnackedRangesToPersist", ranges)
            await rest(self.world.client, "POST", f"{self._path}/dispatcherPauseOnAckStatePersistent", True)

    async def next_ledger(self) -> None:
        """What is published from now on is in another ledger."""
        await rest(self.world.client, "PUT", f"{self._path}/unload")

    @property
    def _path(self) -> str:
        return f"/admin/v2/{self._topic.replace('://', '/')}"

    def pause(self, role: str) -> None:
        """The process of this role hangs, until `resume` or the end of the history: writes are in flight. With the
        owner paused, the left door would send a write again, and its log has no deduplication: storage is paused
        where writes go on afterwards."""
        self.world.signal(role, signal.SIGSTOP)
        self._stack.callback(self.resume, role)

    def resume(self, role: str) -> None:
        self.world.signal(role, signal.SIGCONT)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin it, while the history goes on. It ends with the history."""
        task = asyncio.create_task(work)
        self._stack.callback(task.cancel)
        return task

    async def outcome(self, note: str = "", *, told_stored: Sequence[int] = ()) -> Outcome:
        """What all clients were answered, and what a new one reads. told_stored: ids that a client was told are."""
        answers = {tag: answer for client in self._clients for tag, answer in client.answers.items()}
        stored = await (await self.client()).read()
        return Outcome(
            acknowledged=[tag for tag, (good, _) in answers.items() if good],
            refused=[tag for tag, (good, what) in answers.items() if not good and not _timed_out(what)],
            unanswered=[tag for tag, (good, what) in answers.items() if not good and _timed_out(what)],
            stored=stored,
            told_stored=[str(number) for number in told_stored],
            note=note,
        )


def _timed_out(what: str) -> bool:
    return "timeout" in what.lower() or "timed" in what.lower()


async def lasting(seconds: float) -> None:
    """How long a fault is there."""
    await asyncio.sleep(seconds)
