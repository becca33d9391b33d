"""`python -m tests.suite.distributions`: installs the wheels of dist/, each with that of the log alone into a new
virtualenv, and tries it. `make dist` builds them, and runs this.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LOG = "oncelog"


@dataclass(frozen=True, slots=True)
class Tried:
    """code: runs where the distribution is installed. commands: have their own help then. extras: installed with it."""

    code: str
    commands: tuple[str, ...]
    extras: str = ""


#: {distribution: what shows that it is complete}. Each of the others is then absent.
DISTRIBUTIONS = {
    _LOG: Tried(
        "import oncelog; from importlib.resources import files\n"
        "[getattr(oncelog, name) for name in oncelog.__all__ if name not in ('process', 'run')]\n"
        "console = files('oncelog.metadata.console')\n"
        "assert all(console.joinpath(each).is_file() for each in ('templates/base.html', 'static/console.js'))",
        ("admin", "produce", "read", "standalone", "storage"),
    ),
    "oncelog_doors": Tried("import oncelog_doors.process", ()),
    "oncelog_effects": Tried(
        "import oncelog, oncelog_effects; from oncelog_effects import outbox; oncelog.process; oncelog.run\n"
        "oncelog_effects.TopicEffects, oncelog_effects.FileEffects, oncelog_effects.SqlEffects, outbox.publish",
        ("effects", "mirror", "relay", "run"),
        extras="[sql]",
    ),
    "oncelog_lab": Tried("import oncelog_lab", ("bench", "chaos", "demo")),
    "oncelog_spark": Tried(
        "from oncelog_spark.data_source import OncelogDataSource; assert OncelogDataSource.name() == 'oncelog'\n"
        "import oncelog_spark.session",
        ("pipeline",),
    ),
}


def main() -> None:
    """Raises CalledProcessError for a wheel that cannot be installed, AssertionError for one that lacks something."""
    for name in DISTRIBUTIONS:
        place = ROOT / "build" / "installed" / name
        shutil.rmtree(place, ignore_errors=True)
        _install(place, dict.fromkeys((_LOG, name)))
        _try(place, name)
        shutil.rmtree(place)
        print(f"{name}: installed without the other distributions, and tried")


def _install(place: Path, names: dict[str, None]) -> None:
    uv, python = str(ROOT / ".venv/bin/uv"), str(place / "bin/python")
    wheels = [
        f"{wheel}{DISTRIBUTIONS[name].extras}" for name in names for wheel in (ROOT / "dist").glob(f"{name}-*.whl")
    ]
    assert len(wheels) == len(names), f"dist/ has {wheels}, and not one wheel of each of {[*names]}"
    lock = str(ROOT / "requirements.lock")
    for words in (
        ["venv", "--python", sys.executable, str(place)],
        ["pip", "install", "--python", python, "--constraint", lock, *wheels],
        ["pip", "check", "--python", python],
    ):
        subprocess.run([uv, words[0], "--quiet", *words[1:]], cwd=ROOT, check=True)


def _try(place: Path, name: str) -> None:
    tried = DISTRIBUTIONS[name]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    where = f"import {name}; assert {str(place)!r} in {name}.__file__\n"
    subprocess.run([place / "bin/python", "-I", "-c", where + tried.code], cwd=place, env=environment, check=True)
    for other, its in DISTRIBUTIONS.items():
        for command in its.commands:
            words = [str(place / "bin/oncelog"), command, "--help"]
            shown = subprocess.run(words, cwd=place, env=environment, check=True, capture_output=True, text=True).stdout
            told = "To install it" in " ".join(shown.split())
            assert told is (other not in {_LOG, name}), f"{name}: oncelog {command} --help: {shown}"


if __name__ == "__main__":
    main()
