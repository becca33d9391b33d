"""The files that are measured: those of the working tree, or those of a revision."""

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tests.tidy.source import ROOT, repository

#: {path relative to the repository: text}
Tree: TypeAlias = Mapping[str, str]


def working_tree() -> Tree:
    """The files as they are now, also those that git does not know yet."""
    return {source.path: source.text for source in repository()}


def tree_of(revision: str, root: Path = ROOT) -> Tree:
    """The files of a revision of git, read into memory. Raises CalledProcessError if git does not know it."""
    command = ["git", "archive", "--format=tar", revision]
    archive = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    files: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            if (file := members.extractfile(member)) is not None:
                files[member.name] = file.read().decode(errors="replace")
    return files
