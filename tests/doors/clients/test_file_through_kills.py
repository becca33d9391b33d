"""A file through Pulsar's Python client: its program, the door, the owner and a storage node are killed."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

import oncelog
from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.conftest import client
from tests.cluster.loads import read_all
from tests.cluster.programs import Running, running, started
from tests.doors.clients import publish_file

__all__ = ["client", "cluster"]

TOPIC = "persistent://public/default/lines"
#: Between two kills, and behind the last one.
LINES_EACH = 3_000
TIMEOUT_S = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Sessions end later than any deadline here, so nothing waits for one to end."""
    with (
        claim_port("127.0.0.1") as claim,
        Cluster.running(tmp_path, pulsar_port=port_of(claim), session_timeout_ms=60_000) as own,
    ):
        yield own


class Publisher:
    """Runs of `publish_file.py`, one after another. A run publishes the lines that it is given, and waits for more, so
    no kill comes after its end."""

    def __init__(self, directory: Path, url: str, lines: int) -> None:
        self._file = directory / "lines"
        self._command = guarded([sys.executable, publish_file.__file__, url, TOPIC, str(self._file)])
        self._given, self._runs = 0, 0
        self.lines = [b"line %d" % number for number in range(1, lines + 1)]
        self._file.write_bytes(b"\n".join(self.lines))

    def start(self, *words: str) -> Running:
        self._runs += 1
        log = self._file.with_name(f"publisher-{self._runs}.log")
        self.run = started(log, [*self._command, *words], environment(), self._file.parent, stdin=subprocess.PIPE)
        return self.run

    def give(self) -> None:
        """The next lines."""
        self._given += LINES_EACH
        self._say(self._given)

    def give_all_again(self) -> None:
        self._say(self._given)

    def _say(self, complete: int) -> None:
        assert self.run.process.stdin is not None
        self.run.process.stdin.write(b"%d\n" % complete)
        self.run.process.stdin.flush()

    def under_way(self) -> bool:
        """Some of the lines that it was given last have their receipts."""
        return self.answered >= self._given - LINES_EACH * 2 // 3

    async def ends(self) -> None:
        """Without more lines, once all have their receipts."""
        assert self.run.process.stdin is not None
        self.run.process.stdin.close()
        refused = [line for line in (await self.run.ends()).splitlines() if re.match(r"\d+ failed", line)]
        assert not refused

    @property
    def answered(self) -> int:
        """The last line that has its receipt in this run."""
        written = self.run.text()[-200:].split("\n")[1:-1]
        return max((int(each) for each in written if each.isdigit()), default=0)


def read_with_pulsar(url: str) -> list[tuple[str, bytes]]:
    """All messages of the topic, through a Reader. Its library shows no sequence ids."""
    found = []
    own = pulsar.Client(url, operation_timeout_seconds=TIMEOUT_S, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        reader = own.create_reader(TOPIC, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(TIMEOUT_S * 1000)
            found.append((message.producer_name(), message.data()))
    finally:
        own.close()
    return found


@pytest.mark.asyncio
async def test_each_line_is_read_once_and_in_order(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """By a reader of the SDK, and by a Reader of Pulsar's client. One run of the program outlives the door, the owner
    and a storage node; the last one publishes all lines once again."""
    url = cluster.status()["pulsar_url"]
    publisher = Publisher(tmp_path, url, 5 * LINES_EACH)
    async with running(publisher.start()) as run:
        publisher.give()
        await run.kill(once=publisher.under_way)
    answered = publisher.answered
    async with running(publisher.start()) as run:
        assert int((await run.says("begins behind")).split()[-1]) >= answered
        for which in ("door-1", await cluster.owner_of(TOPIC), "storage-1"):
            publisher.give()
            await cluster.kill(which, once=publisher.under_way)
        publisher.give()
        await publisher.ends()
        assert publisher.answered == len(publisher.lines)
    async with running(publisher.start("again")):
        publisher.give_all_again()
        await publisher.ends()
    stored = [(each.producer_name, each.sequence_id, bytes(each.value)) for each in await read_all(client, TOPIC)]
    assert stored == [("importer", number, line) for number, line in enumerate(publisher.lines, 1)]
    assert await asyncio.to_thread(read_with_pulsar, url) == [("importer", line) for line in publisher.lines]
