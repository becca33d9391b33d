"""The tables: code lines of the product by distribution and room, lines of its other languages, code lines of the tests
by folder, files of the walks, seconds of the parts of the suite."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.measure.code_lines import code_lines, full_lines, is_generated
from tests.tidy.measure.trees import Tree
from tests.tidy.measure.walks import WALKS, walks_in

#: Where the suite keeps what its parts took when they ran last: {part: {"seconds": …, "cpu_seconds": …}}.
SECONDS = ".cache/suite/seconds.json"
#: Their folders are shown, too, as those of each distribution are.
SPLIT = {"services/oncelog/core", "tests/cluster", "tests/contract"}
#: The files of a folder that lie beside the folders in it.
BESIDE = "(beside)"
#: Of the product besides Python, by suffix.
LANGUAGES = {
    ".css": "CSS",
    ".html": "HTML",
    ".js": "JavaScript",
    ".proto": "wire (.proto)",
    ".sh": "shell",
    ".tpl": "chart (.tpl)",
    ".yaml": "chart (.yaml)",
}


@dataclass(frozen=True, slots=True)
class Table:
    """rows: {name: numbers, one for each column}. A name with slashes is a folder in that of the former part."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[int, ...]]


def tables(tree: Tree) -> list[Table]:
    """What can be read from the files."""
    return [
        python_table("product", tree, "services"),
        python_table("tests", tree, "tests"),
        languages_table(tree),
        walks_table(tree),
    ]


def python_table(title: str, tree: Tree, top: str) -> Table:
    """Code lines of Python below a folder, which is the first row: the sum."""
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, text in tree.items():
        if path.startswith(f"{top}/") and path.endswith(".py") and not is_generated(path):
            lines = _code_lines(text)
            for room in _rooms(path):
                found[room][0] += lines
                found[room][1] += 1
    return Table(title, ("code lines", "files"), {room: tuple(found[room]) for room in sorted(found, key=_order)})


def languages_table(tree: Tree) -> Table:
    """What the product holds besides Python, in lines that are not empty."""
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, text in tree.items():
        language = LANGUAGES.get(PurePosixPath(path).suffix)
        if language is not None and path.startswith(("services/", "proto/", "deploy/", "docker/")):
            found[language][0] += full_lines(text)
            found[language][1] += 1
    return Table("other languages", ("full lines", "files"), {name: tuple(found[name]) for name in sorted(found)})


def walks_table(tree: Tree) -> Table:
    """No rows for a revision that has no list of walks."""
    rows = {}
    for walk in walks_in(tree.get(WALKS, "")):
        files = {hop.path for hop in walk.hops}
        rows[walk.name] = (len(files), len(walk.hops), sum(_code_lines(tree.get(path, "")) for path in files))
    return Table("walks", ("files", "hops", "code lines"), rows)


def seconds_table(measured: str) -> Table:
    """measured: the text of SECONDS; empty if nothing was measured here."""
    parts = json.loads(measured) if measured else {}
    rows = {name: (round(part["seconds"]), round(part["cpu_seconds"])) for name, part in sorted(parts.items())}
    return Table("seconds by test target", ("seconds", "of CPU"), rows)


def _rooms(path: str) -> Iterator[str]:
    """Yield the rows that count a file, from the outermost one."""
    top, *folders = path.split("/")[:-1]
    room = top
    yield room
    for folder in folders:
        if not _is_split(room):
            return
        room = f"{room}/{folder}"
        yield room
    if _is_split(room):
        yield f"{room}/{BESIDE}"


def _is_split(room: str) -> bool:
    distribution = room.startswith("services/") and room.count("/") == 1
    return "/" not in room or distribution or room in SPLIT


def _order(room: str) -> list[tuple[bool, str]]:
    return [(part == BESIDE, part) for part in room.split("/")]


@cache
def _code_lines(text: str) -> int:
    """Two trees that are compared have most files in common."""
    return code_lines(text)
