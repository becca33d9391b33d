"""`python -m tests.suite.requirements GROUP`: what the distributions need from elsewhere, one requirement a line.

GROUP is `all`, for the environment of this repository; `services`, for the image of the services, which also has the
distribution of effects; or `pipeline`, which the pipeline's image has besides. `make lock` pins them.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OURS = re.compile(r"oncelog\b")
Requirements = Mapping[str, Sequence[str]]


def projects() -> dict[str, Requirements]:
    """{distribution: {extra, "" for none: its requirements}}, as their pyproject.toml say."""
    files = {"oncelog": ROOT / "pyproject.toml"}
    files |= {file.parent.name: file for file in sorted(ROOT.glob("services/*/pyproject.toml"))}
    return {name: _requirements(file) for name, file in files.items()}


def needed(group: str) -> list[str]:
    """Without our own distributions, which no index has. Raises KeyError for an unknown group."""
    found = projects()
    log = found["oncelog"]
    services = [*log[""], *log["services"]]
    groups = {
        "all": [each for project in found.values() for extra in project.values() for each in extra],
        "services": services,
        "pipeline": [each for each in found["oncelog_spark"][""] if each not in services],
    }
    return sorted(dict.fromkeys(_from_elsewhere(groups[group])))


def _requirements(file: Path) -> Requirements:
    project = tomllib.loads(file.read_text())["project"]
    return {"": project["dependencies"], **project.get("optional-dependencies", {})}


def _from_elsewhere(requirements: Sequence[str]) -> Iterator[str]:
    yield from (each for each in requirements if not _OURS.match(each))


if __name__ == "__main__":
    print(*needed(sys.argv[1]), sep="\n")
