"""A program of the next level, for tests alone: this tree's package, which knows one level more, and has a new field.

It is what a later version will be to this one: until the level is raised, both take part in the cluster. It differs in
nothing else, so it acts at the higher level as at the lower one.
"""

import shutil
from pathlib import Path

from oncelog.core.process_version import PROCESS_VERSION

NEXT_LEVEL = PROCESS_VERSION + 1
#: A field of `/storage_ends` that this version does not know.
NEXT_FIELD = "of_the_next_level"

_CHANGES = {
    "core/process_version.py": (f"\nPROCESS_VERSION = {PROCESS_VERSION}\n", f"\nPROCESS_VERSION = {NEXT_LEVEL}\n"),
    "metadata_store/records/registry.py": ('noted = {"starts"', f'noted = {{"{NEXT_FIELD}": end.version, "starts"'),
}


def write_next(services: Path, directory: Path) -> Path:
    """Copy the package below `services` to `directory`, one level higher. Returns the folder for PYTHONPATH."""
    package = directory / "services" / "oncelog"
    shutil.copytree(services / "oncelog", package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name, (before, after) in _CHANGES.items():
        text = (package / name).read_text()
        assert text.count(before) == 1, f"{name} has {before!r} not once"
        (package / name).write_text(text.replace(before, after))
    return package.parent
