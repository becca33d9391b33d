"""A proof: files of tests that take long, or that only a change of some folders can break."""

from collections.abc import Iterable
from dataclasses import dataclass

CORE = "services/oncelog/core"


@dataclass(frozen=True, slots=True)
class Proof:
    """Files of tests that are not run by default, or a longer run of some that are.

    words: the command, instead of pytest with the files.
    rooms: the folders and files whose change needs it, from the top of the repository.
    covered_by: what is left in the default suite, below tests/. seconds: as of a part.
    """

    name: str
    files: tuple[str, ...]
    rooms: tuple[str, ...]
    covered_by: tuple[str, ...]
    words: tuple[str, ...] = ()
    seconds: float = 60.0

    def needed_for(self, changed: Iterable[str]) -> list[str]:
        """The changed files that need this proof. changed: paths from the top of the repository."""
        rooms = (*self.rooms, *self.paths())
        return [path for path in changed if any(inside(path, room) for room in rooms)]

    def paths(self) -> list[str]:
        """Its files, from the top of the repository."""
        return [f"tests/{file}" for file in self.files]


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
