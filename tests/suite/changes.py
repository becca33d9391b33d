"""Which files a change touches, as git knows them."""

import subprocess
from pathlib import Path

#: A change is as old as the last night, in which all proofs ran.
NIGHT_S = 24 * 3600


def _git(repository: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line]


def changed_files(repository: Path, base: str) -> list[str]:
    """Paths from the top of the repository that differ from where HEAD and `base` part, also those that git does not
    know yet. Raises CalledProcessError if there is no such revision."""
    (parted,) = _git(repository, "merge-base", base, "HEAD")
    return sorted(
        {
            *_git(repository, "diff", "--name-only", "--no-renames", parted),
            *_git(repository, "ls-files", "--others", "--exclude-standard"),
        }
    )


def before_last_night(repository: Path) -> str:
    """The newest revision on the way to HEAD that is a day older than HEAD, or the oldest that git knows."""
    (now,) = _git(repository, "log", "-1", "--format=%ct")
    older = _git(repository, "rev-list", "-1", f"--before={int(now) - NIGHT_S}", "HEAD")
    return (older or _git(repository, "rev-list", "--max-parents=0", "HEAD"))[0]
