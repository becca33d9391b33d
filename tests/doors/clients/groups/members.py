"""Members of groups as processes, and what they have done."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment
from tests.cluster.programs import Running, started
from tests.doors.clients.groups import group_member

_NUMBERS = count(1)


class Got(NamedTuple):
    partition: int
    offset: int
    value: str


class Member:
    """One consumer of a group, in a process of its own."""

    def __init__(self, run: Running) -> None:
        self.run = run

    @property
    def said(self) -> list[list[Any]]:
        """All that it has printed, line by line; libraries log other lines."""
        lines = self.run.text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith('["')]

    @property
    def got(self) -> list[Got]:
        return [Got(*words) for kind, *words in self.said if kind == "got"]

    @property
    def assigned(self) -> list[int] | None:
        """Its partitions now; None: before its first assignment."""
        found: list[int] | None = None
        for kind, *words in self.said:
            if kind == "assigned":
                found = words[0]
            elif kind == "revoked" and found is not None:
                found = [each for each in found if each not in words[0]]
        return found

    @property
    def committed(self) -> Mapping[int, int]:
        """{partition: the offset that was confirmed last}."""
        found: dict[int, int] = {}
        for kind, *words in self.said:
            if kind == "committed":
                found |= {int(partition): offset for partition, offset in words[0].items()}
        return found

    async def has(self, *partitions: int) -> None:
        """Return when it has exactly these."""
        await self.run.reaches(lambda: self.assigned == list(partitions), f"{partitions} for {self.run.log.stem}")

    async def has_some(self, number: int) -> list[int]:
        await self.run.reaches(lambda: len(self.assigned or ()) == number, f"{number} partitions")
        return self.assigned or []

    async def has_committed(self, offsets: Mapping[int, int]) -> None:
        """Return when it has confirmed at least these."""

        def reached() -> bool:
            committed = self.committed
            return all(committed.get(each, 0) >= offset for each, offset in offsets.items())

        await self.run.reaches(reached, f"commits of {offsets}")

    async def leaves(self) -> None:
        assert self.run.process.stdin is not None
        self.run.process.stdin.write(b"leave\n")
        self.run.process.stdin.flush()
        await self.run.ends()


class Members:
    """Starts them; they are killed at the end of the block."""

    def __init__(self, directory: Path, servers: str) -> None:
        self._directory, self._servers = directory, servers
        self._runs: list[Running] = []

    def start(self, library: str, group: str, topic: str, *options: str) -> Member:
        log = self._directory / f"member-{next(_NUMBERS)}-{library}.log"
        words = [sys.executable, group_member.__file__, library, self._servers, group, topic, *options]
        run = started(log, guarded(words), environment(), self._directory, stdin=subprocess.PIPE)
        self._runs.append(run)
        return Member(run)

    @classmethod
    @contextmanager
    def of(cls, directory: Path, servers: str) -> Iterator["Members"]:
        members = cls(directory, servers)
        try:
            yield members
        finally:
            for run in members._runs:
                run.end()
