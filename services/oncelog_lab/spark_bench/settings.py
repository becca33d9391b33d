"""The settings of `oncelog bench spark`. Every loop is bounded by one of these."""

from dataclasses import dataclass
from enum import StrEnum


class SparkLoad(StrEnum):
    SOURCE = "source"
    SINK = "sink"
    STREAM = "stream"
    EXPORT = "export"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """rows: of one read. Half as many are written, because mode batch is slower. runs: without the warm-up run."""

    rows: int = 1_000_000
    message_bytes: int = 100
    runs: int = 3
    loads: tuple[SparkLoad, ...] = tuple(SparkLoad)

    @property
    def rows_written(self) -> int:
        return self.rows // 2
