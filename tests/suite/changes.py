"""Since when the proofs of a change are needed, as git knows it."""

import subprocess
from pathlib import Path

#: A change is what has been committed since the last night, in which all proofs ran.
NIGHT_S = 24 * 3600


def before_last_night(repository: Path) -> str:
    """The newest revision on the way to HEAD that is a day older than HEAD, or the first one that git knows."""

    def git(*words: str) -> list[str]:
        return subprocess.run(
            ["git", *words], cwd=repository, check=True, capture_output=True, text=True
        ).stdout.split()

    (now,) = git("log", "-1", "--format=%ct")
    older = git("rev-list", "-1", f"--before={int(now) - NIGHT_S}", "HEAD")
    return (older or git("rev-list", "--max-parents=0", "HEAD"))[0]
