"""What `oncelog bench spark` was asked for. Every loop is bounded by one of these."""

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What is measured."""

    SOURCE = "source"
    SINK = "sink"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """rows: of one read; half as many are written, for mode batch has a longer way. runs: turns that count."""

    rows: int = 1_000_000
    message_bytes: int = 100
    runs: int = 3
    parts: tuple[Part, ...] = tuple(Part)

    @property
    def rows_written(self) -> int:
        return self.rows // 2
