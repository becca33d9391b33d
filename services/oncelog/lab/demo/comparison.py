"""The verdict: what was read from the topic, compared with the file, line by line.

Every line must be there once, as it is in the file, in the order of the file. A message that is no line of the file, or
is not what stands at its offset, replaces nothing: it is one too many, and the line that it is not counts as lost. So
always stored == lines - lost + duplicated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncelog.cli.produce.line_file import LineFile

_STORIES_MAX = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of lines and messages, and the first few of what is wrong, told."""

    lines: int
    stored: int
    lost: int
    duplicated: int
    out_of_order: int
    stories: tuple[str, ...]

    @property
    def perfect(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order)


class Comparison:
    """Takes the messages in the order of the topic."""

    def __init__(self, lines: Sequence[bytes], offsets: Sequence[int]) -> None:
        self._lines = lines
        self._offsets = offsets
        self._numbers = {offset: number for number, offset in enumerate(offsets)}
        self._seen = bytearray(len(lines))
        #: number of the line that is furthest in the file among those seen
        self._furthest = -1
        self._stored = 0
        self._duplicated = 0
        self._out_of_order = 0
        self._stories: list[str] = []

    def add(self, values: Iterable[bytes | memoryview], sequence_ids: Iterable[int]) -> None:
        """The next messages: each value with its sequence id, which is the offset of its line."""
        for value, offset in zip(values, sequence_ids, strict=True):
            self._stored += 1
            number = self._numbers.get(offset)
            if number is None or self._lines[number] != value:
                self._duplicated += 1
                self._tell(f"message {self._stored - 1} is no line of the file: offset {offset}, {bytes(value)[:60]!r}")
            elif self._seen[number]:
                self._duplicated += 1
                self._tell(f"line {number + 1} is stored again as message {self._stored - 1}")
            else:
                self._seen[number] = 1
                if number < self._furthest:
                    self._out_of_order += 1
                    self._tell(f"line {number + 1} comes after line {self._furthest + 1}")
                self._furthest = max(self._furthest, number)

    def verdict(self) -> Verdict:
        """After the last message."""
        lost = self._seen.count(0)
        if lost:
            number = self._seen.index(0)
            self._tell(f"line {number + 1} at byte {self._offsets[number]} is not stored")
        return Verdict(len(self._lines), self._stored, lost, self._duplicated, self._out_of_order, tuple(self._stories))

    def _tell(self, story: str) -> None:
        if len(self._stories) < _STORIES_MAX:
            self._stories.append(story)


def whole_file(file: LineFile) -> tuple[list[bytes], list[int]]:
    """All lines with their offsets."""
    lines: list[bytes] = []
    offsets: list[int] = []
    for block in file.blocks(0):
        assert block.offsets is not None, "a file has offsets"
        lines += block.values
        offsets += block.offsets
    return lines, offsets
