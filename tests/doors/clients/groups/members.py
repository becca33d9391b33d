"""Members of groups as processes, and what they have done."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment
from tests.cluster.programs import Running, started
from tests.doors.clients.groups import group_member

_NUMBERS = count(1)
#: {library: the words in front of the servers, of a program that prints what `group_member` prints}
Programs = Mapping[str, Sequence[str]]
NO_PROGRAMS: Programs = {}


class Said(NamedTuple):
    """One line of a member. when: ns."""

    when: int
    kind: str
    words: list[Any]


class Got(NamedTuple):
    partition: int
    offset: int
    value: str


class Member:
    """One consumer of a group, in a process of its own."""

    def __init__(self, run: Running) -> None:
        self.run = run

    @property
    def said(self) -> list[Said]:
        """All that it has printed; libraries log other lines."""
        lines = (json.loads(line) for line in self.run.text().split("\n")[:-1] if line.startswith("[1"))
        return [Said(when, kind, words) for when, kind, *words in lines]

    @property
    def got(self) -> list[Got]:
        return [Got(*each.words) for each in self.said if each.kind == "got"]

    @property
    def assigned(self) -> list[int] | None:
        """Its partitions now; None: before its first assignment."""
        found: list[int] | None = None
        for _, kind, words in self.said:
            if kind == "assigned":
                found = words[0]
            elif kind == "revoked" and found is not None:
                found = [each for each in found if each not in words[0]]
        return found

    @property
    def committed(self) -> dict[int, int]:
        """{partition: the highest offset that was confirmed}."""
        return highest(self.commits)

    @property
    def commits(self) -> list[tuple[int, int, int]]:
        """(when, partition, offset) of those that were confirmed."""
        lines = [each for each in self.said if each.kind == "committed"]
        return [(each.when, int(part), offset) for each in lines for part, offset in each.words[0].items()]

    @property
    def starts(self) -> list[tuple[int, int, int]]:
        """(when it was assigned, partition, the first offset that it got then)."""
        found, since = [], dict[int, int]()
        for when, kind, words in self.said:
            if kind == "assigned":
                since |= dict.fromkeys(words[0], when)
            elif kind == "got" and words[0] in since:
                found.append((since.pop(words[0]), words[0], words[1]))
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

    def __init__(self, directory: Path, servers: str, programs: Programs) -> None:
        self._directory, self._servers, self._programs = directory, servers, programs
        self._runs: list[Running] = []

    def start(self, library: str, group: str, topic: str, *options: str) -> Member:
        log = self._directory / f"member-{next(_NUMBERS)}-{library}.log"
        program = self._programs.get(library, [sys.executable, group_member.__file__, library])
        words = [*program, self._servers, group, topic, *options]
        run = started(log, guarded(words), environment(), self._directory, stdin=subprocess.PIPE)
        self._runs.append(run)
        return Member(run)

    @classmethod
    @contextmanager
    def of(cls, directory: Path, servers: str, programs: Programs = NO_PROGRAMS) -> Iterator["Members"]:
        """programs: of libraries that `group_member` does not have."""
        members = cls(directory, servers, programs)
        try:
            yield members
        finally:
            for run in members._runs:
                run.end()


def highest(commits: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """{partition: its highest offset}."""
    found: dict[int, int] = {}
    for _, partition, offset in commits:
        found[partition] = max(found.get(partition, 0), offset)
    return found


def check_starts(members: Sequence[Member]) -> None:
    """No member began below what was confirmed before it had its partitions."""
    commits = [each for member in members for each in member.commits]
    for member in members:
        for when, partition, offset in member.starts:
            before = highest(each for each in commits if each[0] < when and each[1] == partition)
            assert offset >= before.get(partition, 0), f"{member.run.log.stem} got {offset} of {partition}: {before}"


def check_each_once(members: Sequence[Member], published: Sequence[Got]) -> None:
    assert sorted(each for member in members for each in member.got) == sorted(published)


def check_each_at_least_once(members: Sequence[Member], published: Sequence[Got]) -> None:
    missing = set(published) - {each for member in members for each in member.got}
    assert not missing, sorted(missing)[:20]
