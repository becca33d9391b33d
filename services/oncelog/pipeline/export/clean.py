"""Removing what dead runs of an export have left, without harm to one that is alive. Pure.

    Begin ──> LISTING ──> READING ──┬── nothing to remove ─────────────────────────> Finish
                                    └── FENCING ──┬── stored ──> REMOVING ──────────> Finish
                                                  └── taken ──> LISTING, at most ROUNDS_MAX times

Rules
- Nobody can see whether a run is alive. But a run commits with the number behind the last manifest that it read, before
  it made its directory. So: list directories, then make a manifest of no files. Whoever was listed and is in no
  manifest by then has lost its number, and never counts; it ends with an error that says so. Only that is deleted.
- A run that begins afterwards is in no list, and so is never deleted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from oncelog.core.errors import Conflict, InvariantViolated, OncelogError
from oncelog.pipeline.export.manifest import Manifest, run_name

ROUNDS_MAX = 5


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The answer to List: names of runs that have claimed a directory; nobody else's directories are among them."""

    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class ManifestsRead:
    """The answer to ReadManifests: all of them, by number."""

    manifests: Sequence[Manifest]


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer to Fence: the manifest is there."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The other answer to Fence: another run made a manifest of this number."""

    by: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The answer to Remove."""


Event = Begin | Listed | ManifestsRead | Fenced | Taken | Removed


@dataclass(frozen=True, slots=True)
class List:
    """Listed."""


@dataclass(frozen=True, slots=True)
class ReadManifests:
    """ManifestsRead."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Make this manifest: Fenced or Taken."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete what these runs have written: Removed."""

    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The end. runs: what was removed."""

    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The end: nothing was removed."""

    error: OncelogError


Effect = List | ReadManifests | Fence | Remove | Finish | Refuse


class State(Enum):
    NEW = "new"
    LISTING = "listing runs"
    READING = "reading manifests"
    FENCING = "fencing"
    REMOVING = "removing"
    OVER = "over"


class Clean:
    """One clean. Each list of effects has one effect, which is answered by one event. token: what no other run has."""

    def __init__(self, token: str, now_ms: int) -> None:
        self.state = State.NEW
        self._token = token
        self._now_ms = now_ms
        self._runs: tuple[str, ...] = ()
        self._rounds = 0

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Begin():
                self._move(State.NEW, State.LISTING)
                return [List()]
            case Listed():
                self._move(State.LISTING, State.READING)
                self._runs = tuple(event.runs)
                return [ReadManifests()]
            case ManifestsRead():
                self._expect(State.READING)
                return self._fence(event.manifests)
            case Fenced():
                self._move(State.FENCING, State.REMOVING)
                return [Remove(self._runs)]
            case Taken():
                return self._again(event.by)
            case Removed():
                self._move(State.REMOVING, State.OVER)
                return [Finish(self._runs)]
            case _:
                assert_never(event)

    def _fence(self, manifests: Sequence[Manifest]) -> list[Effect]:
        self._runs = leftovers(self._runs, manifests)
        if not self._runs:
            self.state = State.OVER
            return [Finish(())]
        self.state = State.FENCING
        number = len(manifests)
        reached = manifests[-1].reached if manifests else {}
        return [Fence(Manifest(number, run_name(number, self._token), self._now_ms, reached=reached))]

    def _again(self, by: str) -> list[Effect]:
        self._move(State.FENCING, State.LISTING)
        self._rounds += 1
        if self._rounds < ROUNDS_MAX:
            return [List()]
        self.state = State.OVER
        message = f"other runs come first again and again, {by} was the last: nothing was removed. Try it later"
        return [Refuse(Conflict(message))]

    def _move(self, expected: State, following: State) -> None:
        self._expect(expected)
        self.state = following

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise InvariantViolated(f"an answer for {state.value} came while {self.state.value}")


def leftovers(runs: Iterable[str], manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Those of the runs that no manifest names, by name."""
    counting = {manifest.run for manifest in manifests}
    return tuple(sorted(set(runs) - counting))
