"""The record of a run: which messages were sent and acknowledged, and how long clients waited between two of them."""

import json
import time
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO

#: The names of clients that open their topic once and keep it open begin with this.
STEADY = "steady-"


class SendFate(IntEnum):
    """What the client learned about a message. A lower value never replaces a higher one."""

    NOT_SENT = 0
    #: sent; whether it is stored is unknown
    UNKNOWN = 1
    #: refused permanently, so it is not stored
    REFUSED = 2
    ACKNOWLEDGED = 3


_HISTORY_TYPES = {SendFate.UNKNOWN: "info", SendFate.REFUSED: "fail", SendFate.ACKNOWLEDGED: "ok"}


@dataclass(frozen=True, slots=True)
class AckPause:
    """A client had no acknowledgement for `ms`, until `ended_at_s`."""

    client: str
    ms: float
    ended_at_s: float

    def overlaps(self, from_s: float, to_s: float) -> bool:
        return self.ended_at_s > from_s and self.ended_at_s - self.ms / 1000 < to_s


def longest_pause_ms(
    pauses: Iterable[AckPause], from_s: float, to_s: float = float("inf"), clients: tuple[str, ...] = ("",)
) -> float | None:
    """The longest pause that overlaps this time. clients: prefixes of names. None without such a pause."""
    return max(
        (pause.ms for pause in pauses if pause.client.startswith(clients) and pause.overlaps(from_s, to_s)),
        default=None,
    )


class AckPauses:
    """The pauses of each client between two acknowledgements."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: since the last `take`
        self.pauses: list[AckPause] = []
        self._clock = clock
        self._last_s: dict[str, float] = {}
        self._steady_s: list[float] = []
        self._opening: set[str] = set()

    def acknowledged(self, client: str, at_s: float | None = None) -> None:
        """at_s: the moment of the acknowledgement, in the time of the clock; None: now."""
        now_s = self._clock() if at_s is None else at_s
        last_s = self._last_s.get(client)
        self._last_s[client] = now_s
        if last_s is not None:
            self.pauses.append(AckPause(client, 1000 * (now_s - last_s), now_s))
            if client.startswith(STEADY) and client not in self._opening:
                insort(self._steady_s, now_s - last_s)
        self._opening.discard(client)

    def begins(self, client: str) -> None:
        """The client opens its topic now: the time before is not a pause."""
        self._last_s[client] = self._clock()
        self._opening.add(client)

    @property
    def steady_gap_ms_p999(self) -> float | None:
        """99.9th percentile of all pauses of the steady clients, without their opening. None before the first."""
        return round(1000 * self._steady_s[len(self._steady_s) * 999 // 1000], 1) if self._steady_s else None

    def take(self) -> dict[str, dict[str, object]]:
        """For each client the pauses since the last call, and the time since its last acknowledgement."""
        now_s = self._clock()
        pauses, self.pauses = self.pauses, []
        taken: dict[str, dict[str, object]] = {
            client: {"gaps_ms": [], "idle_ms": round(1000 * (now_s - last_s), 1)}
            for client, last_s in self._last_s.items()
        }
        for pause in pauses:
            gaps = taken[pause.client]["gaps_ms"]
            assert isinstance(gaps, list)
            gaps.append([round(pause.ms, 1), round(1000 * (now_s - pause.ended_at_s), 1)])
        return taken


class AckRecord:
    """All messages of a run. history: file for every send and answer, as JSON lines."""

    def __init__(self, history: Path | None = None) -> None:
        #: {client: fate of each of its messages by number, from 0}
        self.fates: dict[str, bytearray] = {}
        self.pauses = AckPauses()
        self._history: IO[str] | None = None if history is None else history.open("w")

    @property
    def acknowledged_count(self) -> int:
        return sum(fates.count(SendFate.ACKNOWLEDGED) for fates in self.fates.values())

    def sent(self, client: str, first: int, count: int) -> None:
        """From now on these messages may be stored."""
        self.note(client, first, count, SendFate.UNKNOWN)
        self._write("invoke", client, first, count)

    def answered(self, client: str, first: int, count: int, fate: SendFate) -> None:
        self.note(client, first, count, fate)
        self._write(_HISTORY_TYPES[fate], client, first, count)

    def note(self, client: str, first: int, count: int, fate: SendFate) -> None:
        fates = self.fates.setdefault(client, bytearray())
        missing = first + count - len(fates)
        if missing > 0:
            fates.extend(bytes(missing))
        for number in range(first, first + count):
            # A retry with an unknown result does not revoke an earlier acknowledgement.
            fates[number] = max(fates[number], fate)

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    def _write(self, kind: str, client: str, first: int, count: int) -> None:
        if self._history is not None:
            facts = {"at_s": round(time.time(), 4), "type": kind, "client": client, "first": first, "count": count}
            self._history.write(json.dumps(facts) + "\n")
