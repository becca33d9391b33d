"""Runs the programs of the readme and of the pages on recipes, effects and the outbox, and kills them."""

import os
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.forked_program import start_forked
from tests.cluster.programs import Running, started
from tests.tidy.documents import programs

PAGE = "docs/recipes.md"
EFFECTS_PAGE = "docs/effects.md"
STORES_PAGE = "docs/effects-stores.md"
OUTBOX_PAGE = "docs/outbox.md"
PAGES = ("README.md", PAGE, EFFECTS_PAGE, STORES_PAGE, OUTBOX_PAGE)
KILLS = 2


class Programs:
    """The programs of the pages as files of one directory, in which they run."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        own = {"ONCELOG_URL": cluster.url, "ONCELOG_ADMIN_URL": cluster.admin_url, "PYTHONUNBUFFERED": "1"}
        self.environment = environment() | own
        self._random = random.Random(str(directory.name))
        for page in PAGES:
            for name, text in programs(page).items():
                assert not (directory / name).exists(), f"two pages have a program {name}"
                (directory / name).write_text(text)

    def command(self, name: str, *arguments: str) -> list[str]:
        return guarded([sys.executable, name, *arguments])

    def start(self, name: str, *arguments: str) -> Running:
        return self.start_command(name, self.command(name, *arguments))

    def start_command(self, name: str, command: list[str]) -> Running:
        return started(self.directory / f"{name}.log", command, self.environment, self.directory)

    def start_forked(self, name: str, *words: str) -> Running:
        """`oncelog` with these words."""
        path = self.directory / f"{name}.log"
        with path.open("ab") as log:
            return Running(start_forked(words, self.environment, log), path)

    async def killed_often(
        self,
        start: Callable[[], Running],
        progress: Callable[[], int],
        total: int,
        *,
        offer: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Start the program, kill -9 it at a random moment of its work, and again; it never comes to its end.

        progress: how much is done, of `total`. Each run gets on by at most a sixth of the rest: a fast one must not
        come to its end before it is killed. offer: gives it so much of its work, never all; without it all is there,
        and a program that does many at once may be at its end before this process has its turn.
        """
        for _ in range(KILLS):
            done = progress()
            sixth = (total - done) // 6
            wanted = done + self._random.randint(1, sixth)
            if offer is not None:
                await offer(wanted + sixth)
            running = start()
            # On a busy machine the program must not go on while this process waits for its turn.
            os.setpriority(os.PRIO_PROCESS, running.process.pid, 10)
            await running.reaches(partial(_is_reached, progress, wanted), f"{wanted} of {total}")
            running.end()
            assert progress() < total, "the program was at its end before it was killed"


def _is_reached(progress: Callable[[], int], wanted: int) -> bool:
    return progress() >= wanted


class Watched:
    """What a topic has, read by the test while the programs run."""

    def __init__(self, reader: oncelog.AsyncReader) -> None:
        self.messages: list[oncelog.Message] = []
        self._reader = reader

    async def follow(self) -> None:
        async for message in self._reader:
            self.messages.append(message)

    @property
    def count(self) -> int:
        return len(self.messages)

    def has(self, count: int) -> bool:
        return self.count >= count

    @property
    def values(self) -> list[bytes]:
        return [bytes(message.value) for message in self.messages]
