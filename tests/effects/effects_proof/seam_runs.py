"""Runs the program of the seams against one topic and one database, and counts what took effect."""

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import create_engine, text

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.programs import DEADLINE_S, Running, started
from tests.cluster.until import until

ROOT = Path(__file__).parents[3]


class SeamRuns:
    """messages: that the topic gets; message n has the value n."""

    def __init__(
        self, cluster: Cluster, directory: Path, topic: str, url: str, *, messages: int, batch: int, pause_s: float
    ) -> None:
        """pause_s: that the function takes."""
        self.messages = messages
        self._cluster = cluster
        self._directory = directory
        self.topic = topic
        self._url = url
        self._words = [topic, str(batch), str(pause_s)]
        self._engine = create_engine(url)
        self._marks = 0

    async def publish(self, client: oncelog.AsyncClient) -> None:
        """And create the table: a program may not get the answer of its first COMMIT."""
        with self._engine.begin() as connection:
            connection.execute(text("CREATE TABLE effects_seen (message integer)"))
        producer = await client.create_producer(self.topic)
        await producer.send_many([str(number).encode() for number in range(self.messages)])

    def start(self, *seam: str, url: str = "") -> Running:
        """url: of the database, for this program."""
        command = guarded(
            [
                sys.executable,
                "-m",
                "tests.effects.effects_proof.seam_program",
                url or self._url,
                *self._words,
                *seam,
            ]
        )
        path = os.pathsep.join([str(ROOT / "services"), str(ROOT)])
        own = environment() | {"ONCELOG_URL": self._cluster.url, "PYTHONPATH": path}
        return started(self._directory / "program.log", command, own, self._directory)

    async def killed_at(self, seam: str, number: int) -> None:
        """A program that kills itself there."""
        program, mark = self._start_at(seam, number, signal.SIGKILL)
        try:
            await until(lambda: not program.runs(), DEADLINE_S, waiting_for=f"the end at {seam}")
            assert mark.exists(), f"it ended before {seam}: {program.log.read_text()[-2000:]}"
        finally:
            program.end()

    async def stopped_at(self, seam: str, number: int) -> Running:
        """A program that has stopped itself there."""
        program, mark = self._start_at(seam, number, signal.SIGSTOP)
        await program.reaches(mark.exists, seam)
        return program

    def _start_at(self, seam: str, number: int, signal_number: signal.Signals) -> tuple[Running, Path]:
        self._marks += 1
        mark = self._directory / f"mark-{self._marks}"
        return self.start(seam, str(number), str(int(signal_number)), str(mark)), mark

    async def completes(self, program: Running) -> None:
        """Until every message took effect, and is acknowledged."""
        await program.reaches(lambda: len(self.seen()) >= self.messages, f"{self.messages} effects")

        async def acknowledged() -> bool:
            found = (await self._cluster.stats(self.topic)).get("subscriptions", {}).get("seams", {})
            return int(found.get("msg_backlog", -1)) == 0

        await until(acknowledged, DEADLINE_S, every_s=0.1, waiting_for="the acknowledgements")

    def seen(self) -> list[int]:
        """The effects that are committed, in their order."""
        with self._engine.connect() as connection:
            return [int(row[0]) for row in connection.execute(text("SELECT message FROM effects_seen"))]

    def check(self) -> None:
        """Each message has one effect: a count for each, and the sum."""
        found = self.seen()
        assert sorted(found) == list(range(self.messages)), f"{len(found)} effects of {self.messages} messages"
        assert sum(found) == self.messages * (self.messages - 1) // 2

    def close(self) -> None:
        self._engine.dispose()
