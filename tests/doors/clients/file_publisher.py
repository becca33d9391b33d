"""A program with a client of Pulsar that publishes a file, through kills of all that is between it and the disks."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.loads import read_all
from tests.cluster.programs import Running, running, started

TOPIC = "persistent://public/default/lines"
#: Between two kills, and behind the last one.
LINES_EACH = 3_000


class Publisher:
    """Runs of a program as `publish_file.py`, one after another. A run publishes the lines that it is given, and waits
    for more, so no kill comes after its end."""

    def __init__(self, directory: Path, program: Sequence[str], url: str, *, resumes: bool) -> None:
        """program: the words before URL TOPIC FILE. resumes: its library says in a new process what is stored."""
        self._file = directory / "lines"
        self._command = guarded([*program, url, TOPIC, str(self._file)])
        self._given, self._runs = 0, 0
        self.resumes = resumes
        self.lines = [b"line %d" % number for number in range(1, 5 * LINES_EACH + 1)]
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
        """The last line that has its receipt in this run, between what its library logs."""
        written = self.run.text()[-4000:].split("\n")[1:-1]
        return max((int(each) for each in written if each.isdigit()), default=0)


async def publish_through_kills(cluster: Cluster, client: oncelog.AsyncClient, publisher: Publisher) -> None:
    """Kill the program; then the door, the owner and a storage node below its next run; the last run publishes all
    lines once again. Each line is stored once, and in order."""
    async with running(publisher.start()) as run:
        publisher.give()
        await run.kill(once=publisher.under_way)
    answered = publisher.answered
    async with running(publisher.start()) as run:
        begins = int((await run.says("begins behind")).split()[-1])
        assert begins >= answered if publisher.resumes else begins == 0
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
