"""Entries that a read skipped, told on standard error and, with -o json, in their place among the messages."""

import json

from rich.console import Console

from oncelog.client.corruption import Skipped
from oncelog.client.reader import AsyncReader


class SkipsTold:
    """What of one reader's skipped entries was told already."""

    def __init__(self, reader: AsyncReader, errors: Console) -> None:
        self._reader = reader
        self._errors = errors
        self._told = 0

    def new(self) -> list[Skipped]:
        """Tell the entries skipped since the last call, and return them; of very many, the newest."""
        total, newest = self._reader.skipped
        count = total - self._told
        if not count:
            return []
        self._told = total
        skipped = list(newest[-count:])
        if count > len(skipped):
            self._errors.print(f"skipped {count - len(skipped)} entries that cannot be read", markup=False)
        for each in skipped:
            self._errors.print(f"skipped {each}", markup=False, soft_wrap=True)
        return skipped


def skip_lines(skipped: list[Skipped]) -> bytes:
    """A JSON object for each entry; `count` is null where nobody knows it."""
    return b"".join(
        json.dumps(
            {
                "skipped": {
                    "position": f"{each.ledger_id}:{each.entry_id}",
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
