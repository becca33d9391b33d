"""What the house rules read: every text file of the repository as a value, and a rule with its own proof.

Ignored by git means ignored here; a file not yet known to git counts, so that a rule speaks before the commit.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The folders of the product: the log, and what is installed beside it. The lab tries them.
PRODUCT = ("services/oncelog", "services/oncelog_doors", "services/oncelog_effects", "services/oncelog_spark")
DISTRIBUTIONS = (*PRODUCT, "services/oncelog_lab")
#: What a make target writes: `make proto` and `make kafka-tables`.
GENERATED = re.compile(r"_pb2|/wire/kafka_tables\.py$")
#: The folders of the pure cores.
CORES = ("services/oncelog/core", "services/oncelog_doors/core", "services/oncelog_effects/core")
_CACHES = {".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".grimp_cache", ".hypothesis"}


@dataclass(frozen=True, slots=True)
class Source:
    """One text file. path: relative to the repository, with forward slashes."""

    path: str
    text: str

    @property
    def is_ours(self) -> bool:
        """Whether we wrote it: generated code follows its generator's rules, the licence its authors'."""
        return not GENERATED.search(self.path) and self.path != "LICENSE"

    @property
    def is_python(self) -> bool:
        """Whether we wrote it, in Python."""
        return self.is_ours and self.path.endswith(".py")

    @property
    def is_story(self) -> bool:
        """Whether it has stories (tests/stories/story.py)."""
        return self.inside("tests") and self.path.endswith(".txt") and "/stories/" in self.path

    def inside(self, *folders: str) -> bool:
        """Whether the file lies under one of the folders."""
        return self.path.startswith(tuple(f"{folder}/" for folder in folders))

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, walked once for all rules."""
        return _nodes(self.text)

    @property
    def module(self) -> str:
        """The dotted name under which Python imports the file."""
        return self.path.removeprefix("services/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


#: A rule reads all files and yields one complaint for each breach.
Check = Callable[[Sequence[Source]], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A house rule, with the proof that it can fail.

    breaches: repositories in small, each of which breaks it; innocent: the nearest one that does not.
    """

    name: str
    check: Check
    breaches: tuple[tuple[Source, ...], ...]
    innocent: tuple[Source, ...]


def each(check: Callable[[Source], Iterator[str]]) -> Check:
    """Return a check of all files from a check of one."""

    def check_all(sources: Sequence[Source]) -> Iterator[str]:
        for source in sources:
            for complaint in check(source):
                yield f"{source.path}: {complaint}"

    return check_all


def ignored_names() -> set[str]:
    """Return the names that .gitignore keeps out of the top level."""
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return _CACHES | {line.strip("/") for line in lines if line and "*" not in line}


@cache
def repository() -> tuple[Source, ...]:
    """Return every text file of the repository, in order of path."""
    return tuple(_read(ROOT, ignored_names()))


def _read(folder: Path, ignored: set[str]) -> Iterator[Source]:
    for path in sorted(folder.iterdir()):
        if path.name in ignored or path.suffix in {".pyc", ".egg-info"}:
            continue
        if path.is_dir():
            yield from _read(path, _CACHES)
        else:
            yield Source(path.relative_to(ROOT).as_posix(), path.read_text(errors="replace"))


@cache
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parse(text)))
