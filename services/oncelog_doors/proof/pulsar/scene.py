"""Clients of Pulsar in a history, and the scene of it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from oncelog.client.rest_calls import rest
from oncelog_doors.proof.children import Child
from oncelog_doors.proof.outcome import Outcome
from oncelog_doors.proof.pulsar.proxy import PulsarProxy
from oncelog_doors.proof.world import ProofClient, SceneOf, Side

#: How long a message is waited for.
_RECEIVE_MS = 60_000


class PulsarClient(ProofClient[PulsarProxy]):
    """A program with a client library of Pulsar (`clients`)."""

    async def open(self, name: str, *, batch: int = 1, timeout_ms: int = 0) -> int:
        """Open its producer, again if that fails. Returns the last sequence id that it gets. batch: messages of
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

    async def send_all(self, numbers: Sequence[int]) -> None:
        """Each number is tag, id and value; all of them are answered."""
        for number in numbers:
            self.send(str(number), number)
        await self.answer(*map(str, numbers))

    async def consume(self, *, queue: int = 1000) -> None:
        """Open its consumer, of a shared subscription that begins with the first message. queue: messages that the
        library holds ready; 0: a message comes when the program asks for it."""
        await self.done("consuming", f"consume {queue}")

    async def receive(self, *values: str, within_ms: int = _RECEIVE_MS) -> list[str]:
        """What the consumer gets until these have come, or nothing more comes for so long. within_ms 0: no limit."""
        return await self.done("received", f"receive {within_ms} {' '.join(values)}")

    async def acknowledge(self, *values: str) -> None:
        """Of messages that it has received, one after the other. It waits for each receipt if the library has them."""
        await self.done("acknowledged", f"acknowledge {' '.join(values)}")

    async def close_consumer(self) -> None:
        await self.done("closed", "close")


class Scene(SceneOf[PulsarProxy, PulsarClient]):
    """One history with one kind of Pulsar's clients, on one side."""

    def proxy(self) -> AbstractAsyncContextManager[PulsarProxy]:
        return PulsarProxy.running(self.world.doors[self.side].port)

    def arguments(self, port: int) -> list[str]:
        return [f"pulsar://127.0.0.1:{port}", f"persistent://public/{self.side.value}/{self.topic}"]

    def client_of(self, child: Child, proxy: PulsarProxy) -> PulsarClient:
        return PulsarClient(child, proxy)

    async def opened(self, name: str = "shop", *, batch: int = 1, timeout_ms: int = 0) -> PulsarClient:
        """A new process with a producer."""
        client = await self.client()
        await client.open(name, batch=batch, timeout_ms=timeout_ms)
        return client

    async def pause_above(self, ranges: int) -> None:
        """PIP-299: no new messages while more ranges are acknowledged. The rule of the left side has it always."""
        if self.side is Side.DOOR:
            await rest(self.world.client, "POST", f"{self.rest_path}/maxUnackedRangesToPersist", ranges)
            await rest(self.world.client, "POST", f"{self.rest_path}/dispatcherPauseOnAckStatePersistent", True)

    async def next_ledger(self) -> None:
        """What is published from now on is in another ledger."""
        await rest(self.world.client, "PUT", f"{self.rest_path}/unload")

    async def outcome(self, note: str = "", *, told_stored: Sequence[int] = ()) -> Outcome:
        """What all clients were answered, and what a new one reads. told_stored: ids
        that an answer named as stored."""
        answers = self.answers
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
