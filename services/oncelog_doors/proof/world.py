"""Where histories are played: one cluster, a door on each side, and clients behind fault proxies."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from oncelog.client.client import AsyncClient
from oncelog.client.rest_calls import rest
from oncelog_doors.proof.children import Child, ProofFailed, module, wait_for
from oncelog_doors.proof.histories import ClientKind, Proof
from oncelog_doors.proof.proxy import FaultProxy

T = TypeVar("T")
#: The proxy, and the client, of one system.
P = TypeVar("P", bound=FaultProxy)
C = TypeVar("C", bound="ProofClient[Any]")
#: A process that is paused must not lose its session meanwhile.
_SETTINGS = {"ONCELOG_SESSION_TIMEOUT_MS": "60000"}


class Side(Enum):
    """Who decides what is stored. value: the namespace of its topics."""

    RULE = "their-rule"
    DOOR = "default"


class Door:
    """One side's door. It keeps nothing, so it is killed and started again."""

    def __init__(self, side: Side, url: str, log: Path, proof: Proof) -> None:
        self._log, self._protocol = log, proof.protocol
        listening = (f"--{proof.protocol}", "127.0.0.1:0", "--health-port", "0")
        serve = module("oncelog_doors", "serve", "--url", url, *listening)
        self._command = serve if side is Side.DOOR else module(proof.left_door, url)
        self._running = AsyncExitStack()
        self._port = 0

    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        child = await self._running.enter_async_context(Child.running("a door", self._command, self._log))
        serving = json.loads(await child.line())["serving"]
        self._port = int(serving[self._protocol].rpartition(":")[2])

    async def kill(self) -> None:
        await self._running.aclose()


class World:
    """data: of the cluster, and logs. client: of the cluster, while it runs."""

    client: AsyncClient

    def __init__(self, data: Path, proof: Proof) -> None:
        self.data, self.proof = data, proof
        self.doors: dict[Side, Door] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls, data: Path, proof: Proof) -> AsyncIterator["World"]:
        """Raises ProofFailed if a part of it does not start."""
        world = cls(data, proof)
        words = ("--light", "--port=0", "--http-port=0", "-o", "json", f"--data={data / 'cluster'}")
        command = module("oncelog.cli", "standalone", *words)
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                Child.running("the cluster", command, data / "cluster.log", _SETTINGS)
            )
            stack.push_async_callback(cluster.stop)
            url = json.loads(await cluster.line())["url"]
            world.client = await stack.enter_async_context(AsyncClient(url))
            namespace = f"/admin/v2/namespaces/public/{Side.RULE.value}"
            await rest(world.client, "PUT", namespace, may_exist=True)
            await rest(world.client, "POST", f"{namespace}/deduplication", proof.left_deduplication)
            for side in Side:
                world.doors[side] = Door(side, url, data / f"door-{side.value}.log", proof)
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
        """The door and the owner lose what is in flight; both are started again. Elsewhere both are one broker."""
        await self.doors[side].kill()
        former = self._process("owner")
        self.signal("owner", signal.SIGKILL)
        await self.doors[side].start()

        def serves_again() -> bool:
            owner = self._process("owner")
            return bool(owner["restarts"] > former["restarts"] and owner["state"] == "serving")

        await wait_for(serves_again, "owner after a crash")


class ProofClient(Generic[P]):
    """A program with a client library, behind a fault proxy of its own. It sends what the history says."""

    def __init__(self, child: Child, proxy: P) -> None:
        self.child, self.proxy = child, proxy
        #: {tag: whether it was acknowledged, its place or the error}
        self.answers: dict[str, tuple[bool, str]] = {}

    async def answer(self, *tags: str) -> None:
        """Return when these have their answers."""
        while not self.answers.keys() >= set(tags):
            match (await self.child.line()).split(" ", 2):
                case ["sent" | "failed" as word, tag, what]:
                    self.answers[tag] = word == "sent", what
                case words:
                    raise ProofFailed(f"{self.child.name} says {words} for the answer to a send")

    async def done(self, word: str, line: str) -> list[str]:
        """Say it, and wait for its answer. Returns the words behind `word`. Raises ProofFailed for another answer."""
        self.child.say(line)
        said = (await self.child.line()).split()
        if said[0] != word:
            raise ProofFailed(f"{self.child.name} says {' '.join(said)} for the answer to {line}")
        return said[1:]

    async def read(self) -> list[str]:
        """All of the topic."""
        return await self.done("read", "read")


class SceneOf(Generic[P, C]):
    """One history with one kind of client, on one side."""

    def __init__(self, world: World, side: Side, kind: ClientKind, topic: str, stack: AsyncExitStack) -> None:
        self.world, self.side, self.topic = world, side, topic
        self._kind, self._stack = kind, stack
        self._clients: list[C] = []

    # --- of each system -----------------------------------------------------------------------------------------------

    def proxy(self) -> AbstractAsyncContextManager[P]:
        """In front of the door."""
        raise NotImplementedError

    def arguments(self, port: int) -> list[str]:
        """Of the program with a client. port: of its proxy."""
        raise NotImplementedError

    def client_of(self, child: Child, proxy: P) -> C:
        raise NotImplementedError

    # --- of all -------------------------------------------------------------------------------------------------------

    async def client(self) -> C:
        """A new process."""
        proxy = await self._stack.enter_async_context(self.proxy())
        command = [*self._kind.command, *self.arguments(proxy.port)]
        log = self.world.data / f"clients-{self._kind.name}.log"
        child = await self._stack.enter_async_context(Child.running(f"a {self._kind.name} client", command, log))
        self._clients.append(self.client_of(child, proxy))
        return self._clients[-1]

    @property
    def answers(self) -> dict[str, tuple[bool, str]]:
        """Of all clients."""
        return {tag: answer for client in self._clients for tag, answer in client.answers.items()}

    @property
    def rest_path(self) -> str:
        return f"/admin/v2/persistent/public/{self.side.value}/{self.topic}"

    def pause(self, role: str) -> None:
        """The process of this role hangs, until `resume` or the end of the history: writes are in flight. With the
        owner paused, the left door of Pulsar would send a write again, and its log has no deduplication: storage is
        paused where writes go on afterwards."""
        self.world.signal(role, signal.SIGSTOP)
        self._stack.callback(self.resume, role)

    def resume(self, role: str) -> None:
        self.world.signal(role, signal.SIGCONT)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin it, while the history goes on. It ends with the history."""
        task = asyncio.create_task(work)
        self._stack.callback(task.cancel)
        return task


async def lasting(seconds: float) -> None:
    """How long a fault is there."""
    await asyncio.sleep(seconds)
