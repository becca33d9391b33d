"""Remove the files that dead runs of an export have left, and never those of a run that is alive.

Rules
- Nothing shows whether a run is alive. But a run commits the number behind the last manifest that it read, and it read
  that manifest before it made its directory. So: list the runs, then read the manifests, then store a manifest without
  files. A run that was listed and is in no manifest by then finds its number taken: it never counts, and ends with an
  error that says so. Only the files of those runs are deleted.
- A run that begins afterwards is not in the list, so its files are never deleted.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from oncelog.core.errors import Conflict
from oncelog_spark.export.manifest import ExportManifest, run_name

#: How often another run may store a manifest in between, before this gives up.
ROUNDS_MAX = 5


class DirectorySize(NamedTuple):
    """What lies in a directory."""

    files: int
    size_bytes: int


class Leftover(NamedTuple):
    """A run that no manifest names: it died, or is alive."""

    run: str
    files: int
    size_bytes: int


class RunStore(Protocol):
    """The runs and manifests of an export; `store.Exported` is one."""

    def runs(self) -> Sequence[str]:
        """Names of runs that have claimed a directory; other directories are never among them."""

    def manifests(self) -> Sequence[ExportManifest]:
        """All of them, by number."""

    def commit(self, manifest: ExportManifest) -> str | None:
        """Store the manifest, and return None; or return the name of the run that has stored this number already."""

    def size_of(self, run: str) -> DirectorySize:
        """The files of a run."""

    def remove(self, run: str) -> None:
        """Delete the files of a run."""


def clean(store: RunStore, token: str, now_ms: int) -> tuple[Leftover, ...]:
    """Remove what dead runs have left; returns what that was. token: no other run has it.

    Raises Conflict where other runs store manifests in between again and again, and whatever the store raises.
    """
    first: str | None = ""
    for _ in range(ROUNDS_MAX):
        runs = store.runs()
        manifests = store.manifests()
        dead = unnamed(runs, manifests)
        if not dead:
            return ()
        number = len(manifests)
        reached = manifests[-1].reached if manifests else {}
        first = store.commit(ExportManifest(number, run_name(number, token), now_ms, reached=reached))
        if first is None:
            removed = tuple(_leftover(store, run) for run in dead)
            for run in dead:
                store.remove(run)
            return removed
    raise Conflict(f"other runs stored manifests {ROUNDS_MAX} times in between, {first} the last: nothing was removed")


def leftovers(store: RunStore) -> tuple[Leftover, ...]:
    """Runs that no manifest names. Runs are listed first, so that one that commits meanwhile is not among them."""
    runs = store.runs()
    return tuple(_leftover(store, run) for run in unnamed(runs, store.manifests()))


def unnamed(runs: Iterable[str], manifests: Iterable[ExportManifest]) -> tuple[str, ...]:
    """Those of the runs that no manifest names, by name."""
    counting = {manifest.run for manifest in manifests}
    return tuple(sorted(set(runs) - counting))


def _leftover(store: RunStore, run: str) -> Leftover:
    size = store.size_of(run)
    return Leftover(run, size.files, size.size_bytes)
