"""Programs with clients of Kafka in other languages, in the form of `kafka_programs`. They are given files of records
and of options, and print lines."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment
from tests.cluster.programs import Running, started
from tests.doors.clients.kafka_programs import NO_OPTIONS, Message, Options, Read

#: Of one program. A JVM takes long to start beside others.
PROGRAM_S = 180.0


class KafkaPrograms(ABC):
    """directory: for the files that programs are given."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0

    @abstractmethod
    def command(self, name: str, *arguments: str) -> list[str]:
        """name: of the program: Publish, Read or Offsets."""

    def publish(self, servers: str, topic: str, messages: Sequence[Message], options: Options) -> list[int]:
        """The offsets of the messages. options: of the client."""
        return self.publish_to(servers, messages, {topic: options})[topic]

    def publish_to(
        self, servers: str, messages: Sequence[Message], topics: Mapping[str, Options]
    ) -> dict[str, list[int]]:
        """The same messages to each topic, in one program. topics: {topic: options of the client}"""
        pairs = [word for topic, options in topics.items() for word in (self.properties(servers, options), topic)]
        written = self.run("Publish", self.records(messages), *pairs, given=f"{len(messages)}\n")
        return {topic: _offsets_of(lines, len(messages)) for topic, lines in zip(topics, _parts(written), strict=True)}

    def read(self, servers: str, topic: str, count: int, options: Options = NO_OPTIONS) -> list[Read]:
        """The first messages of partition 0."""
        return self.read_from(servers, [topic], count, options)[topic]

    def read_from(
        self, servers: str, topics: Sequence[str], count: int, options: Options = NO_OPTIONS
    ) -> dict[str, list[Read]]:
        """The first messages of partition 0 of each topic, in one program."""
        written = self.run("Read", self.properties(servers, options), str(count), *topics)
        return {topic: list(map(_read_of, lines)) for topic, lines in zip(topics, _parts(written), strict=True)}

    def offsets(self, servers: str, topic: str, *times_ms: int) -> list[str]:
        """What a client learns about partition 0."""
        return self.run("Offsets", self.properties(servers), topic, *map(str, times_ms)).splitlines()

    def properties(self, servers: str, options: Options = NO_OPTIONS) -> str:
        """A file of them."""
        given: Mapping[str, Any] = {"bootstrap.servers": servers, **options}
        return self._file_of("".join(f"{name}={value}\n" for name, value in given.items()))

    def records(self, messages: Sequence[Message]) -> str:
        """A file of them, for `Publish`."""
        return self._file_of("".join(f"{_line_of(each)}\n" for each in messages))

    def _file_of(self, text: str) -> str:
        self._files += 1
        file = self._directory / f"given-{self._files}"
        file.write_text(text)
        return str(file)

    def start(self, log: Path, name: str, *arguments: str) -> Running:
        """It is given its standard input later."""
        command = guarded(self.command(name, *arguments))
        return started(log, command, environment(), log.parent, stdin=subprocess.PIPE)

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """To its end, which must be a good one. Returns its standard output."""
        done = subprocess.run(
            self.command(name, *arguments),
            env=environment(),
            cwd=self._directory,
            input=given,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        return done.stdout


def _parts(written: str) -> list[list[str]]:
    """The lines of each topic."""
    *parts, end = written.split("done\n")
    assert not end, end
    return [part.splitlines() for part in parts]


def _offsets_of(lines: list[str], count: int) -> list[int]:
    answers = [line.split(maxsplit=1) for line in lines]
    assert [number for number, _ in answers] == [str(number) for number in range(1, count + 1)], answers
    assert all(offset.removeprefix("-").isdigit() for _, offset in answers), answers
    return [int(offset) for _, offset in answers]


def _line_of(message: Message) -> str:
    """As `RecordLine` reads it."""
    words = [message.value, message.key]
    for name, value in message.headers:
        words += [name.encode(), value]
    return " ".join("-" if each is None else f"x{each.hex()}" for each in words)


def _read_of(line: str) -> Read:
    """As `RecordLine` writes it, behind the offset."""
    offset, *words = line.split()
    value, key, *headers = [None if word == "-" else bytes.fromhex(word[1:]) for word in words]
    names, values = headers[::2], headers[1::2]
    found = [
        (name.decode(), each) for name, each in zip(names, values, strict=True) if name is not None and each is not None
    ]
    return Read(int(offset), Message(value, key, tuple(found)))
