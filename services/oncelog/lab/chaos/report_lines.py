"""What the workload says while it runs, JSON objects one a line on standard output, and what it keeps for the verdict.

    ready      the topics are there and the clients begin                 topics, clients, left_out {what: why}
    beat       twice a second                                             acked, steady_gap_ms_p999,
                                                                          clients {name: {gaps_ms, idle_ms}}
    route      a topic has another owner                                  topic, address, owner_epoch
    takeover   a takeover as its owner tells it                           topic, owner_epoch, ms, phases_ms, …
    trouble    a client met an error that it does not retry by itself     client, error
    checking   the clients have ended, everything is being read back      acked
    verdict    the last line                                              acked, stored, lost, duplicated, …, stories

Each has `event` and `at_s`, the workload's clock in seconds. gaps_ms are the pauses between two acknowledgements that
ended since the last beat, each [how long, how long ago it ended], idle_ms how long ago the last acknowledgement came;
steady_gap_ms_p999 is over all pauses since the beginning of the clients that stay open, whose names begin with STEADY,
without their opening.
"""

import json
import time
from bisect import insort
from collections.abc import Callable
from pathlib import Path
from typing import IO

from oncelog.lab.chaos.checker import Fate, Promises

_NAMES = {Fate.INFO: "info", Fate.FAILED: "fail", Fate.STORED: "ok"}

#: How the name begins of a client that opens its topic once and keeps it.
STEADY = "steady-"

Say = Callable[..., None]


def say(event: str, **facts: object) -> None:
    """Print one line at once."""
    print(json.dumps({"event": event, "at_s": round(time.time(), 6), **facts}), flush=True)


class Pulse:
    """When each client last had an acknowledgement, and its pauses since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s: dict[str, float] = {}
        #: {client: [(how long, when it ended)]}
        self._gaps_s: dict[str, list[tuple[float, float]]] = {}
        self._steady_gaps_s: list[float] = []
        self._opening: set[str] = set()

    def acked(self, client: str) -> None:
        now_s = self._clock()
        last_s = self._last_s.get(client)
        self._last_s[client] = now_s
        if last_s is not None:
            self._gaps_s.setdefault(client, []).append((now_s - last_s, now_s))
            if client.startswith(STEADY) and client not in self._opening:
                insort(self._steady_gaps_s, now_s - last_s)
        self._opening.discard(client)

    @property
    def steady_gap_ms_p999(self) -> float | None:
        """Of all pauses so far of the clients that stay open; None before the first."""
        gaps_s = self._steady_gaps_s
        return round(1000 * gaps_s[len(gaps_s) * 999 // 1000], 1) if gaps_s else None

    def begins(self, client: str) -> None:
        """Its pause from here on counts; what was before was of its own making."""
        self._last_s[client] = self._clock()
        self._opening.add(client)

    def take(self) -> dict[str, dict[str, object]]:
        now_s = self._clock()
        gaps, self._gaps_s = self._gaps_s, {}
        return {
            client: {
                "gaps_ms": [[_ms(gap_s), _ms(now_s - ended_s)] for gap_s, ended_s in gaps.get(client, [])],
                "idle_ms": _ms(now_s - last_s),
            }
            for client, last_s in self._last_s.items()
        }


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


class Record:
    """The history: each message handed over, and what was answered. path: where it is also written, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self.promises = Promises()
        self.pulse = Pulse()
        self._file: IO[str] | None = None if path is None else path.open("w")

    def invoke(self, client: str, first: int, count: int) -> None:
        """Handed over: from here on it may be stored."""
        self.promises.note(client, first, count, Fate.INFO)
        self._write("invoke", client, first, count)

    def answer(self, client: str, first: int, count: int, fate: Fate) -> None:
        """What became of it; INFO: it is not known."""
        self.promises.note(client, first, count, fate)
        self._write(_NAMES[fate], client, first, count)

    def _write(self, kind: str, client: str, first: int, count: int) -> None:
        if self._file is not None:
            facts = {"at_s": round(time.time(), 4), "type": kind, "client": client, "first": first, "count": count}
            self._file.write(json.dumps(facts) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
