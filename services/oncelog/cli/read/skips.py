"""Reports entries that a read skipped, and gaps: on standard error and, with -o json, between the messages."""

import json
import logging

from rich.console import Console

from oncelog.client.reading import read_stream
from oncelog.client.reading.reader import AsyncReader
from oncelog.client.reading.stream_state import Gap
from oncelog.client.values import corruption
from oncelog.client.values.corruption import Skipped
from oncelog.core.errors import OncelogError

# Python prints warnings of loggers without a handler: each skip and gap would be reported twice.
for _client in (corruption, read_stream):
    logging.getLogger(_client.__name__).addHandler(logging.NullHandler())


class SkipReport:
    """Tracks which of a reader's skipped entries were reported."""

    def __init__(self, reader: AsyncReader, errors: Console) -> None:
        self._reader = reader
        self._errors = errors
        self._reported = 0

    def new(self) -> list[Skipped]:
        """Report and return the entries skipped since the last call; if there are very many, only the newest."""
        total, newest = self._reader.skipped
        count = total - self._reported
        if not count:
            return []
        self._reported = total
        skipped: list[Skipped] = []
        for each in reversed(newest):
            if count <= 0:
                break
            skipped.insert(0, each)
            count -= each.entry_count
        if count > 0:
            self._errors.print(f"skipped {count} entries that cannot be read", markup=False)
        for each in skipped:
            self._errors.print(f"skipped {each}", markup=False, soft_wrap=True)
        return skipped


class GapReport:
    """Tracks which gaps in a topic's indexes were reported."""

    def __init__(self, reader: AsyncReader, errors: Console) -> None:
        self._reader = reader
        self._errors = errors
        self._reported = 0

    def new(self) -> list[Gap]:
        """Report and return the gaps since the last call; if there are very many, only the newest."""
        total, newest = self._reader.gaps
        found = newest[max(0, len(newest) - (total - self._reported)) :]
        self._reported = total
        for each in found:
            self._errors.print(str(each), markup=False, soft_wrap=True)
        return list(found)


class WaitingReport:
    """Says on standard error why the read waits, once for each reason."""

    def __init__(self, errors: Console) -> None:
        self._errors = errors
        self._told = ""

    def tell(self, error: OncelogError) -> None:
        if error.message != self._told:
            self._told = error.message
            self._errors.print(f"waiting: {error.message}", markup=False, soft_wrap=True)


def gap_lines(gaps: list[Gap]) -> bytes:
    """A JSON object per gap; `first_index` is null if it is unknown."""
    return b"".join(json.dumps({"gap": gap._asdict()}).encode() + b"\n" for gap in gaps)


def skip_lines(skipped: list[Skipped]) -> bytes:
    """A JSON object per entry; `count` is null if it is unknown."""
    return b"".join(
        json.dumps(
            {
                "skipped": {
                    "position": f"{each.ledger_id}:{each.entry_id}",
                    "last_position": f"{each.ledger_id}:{each.last}",
                    "first_index": each.first_index,
                    "count": each.count,
                    "reason": each.reason,
                }
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
        for each in skipped
    )
