"""The walks: which files a reader passes through from a request to its answer (walks.txt), and what keeps them true."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.tidy.imports import imported
from tests.tidy.measure.trees import Tree
from tests.tidy.source import Source

#: Where they are written down.
WALKS = "tests/tidy/measure/walks.txt"
_HEAD = re.compile(r"\[([\w-]+)\] (.+)")
_HOP = re.compile(r"(\S+) +(\w+) +(?:\((\w+)\) )?(\S.*)")


@dataclass(frozen=True, slots=True)
class Hop:
    """One place of a walk.

    path: relative to the repository. name: a function or class of it. by: a word that it shares with the hop before;
    None: one of the two imports the other.
    """

    path: str
    name: str
    by: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Walk:
    """text: what it goes from and to."""

    name: str
    text: str
    hops: list[Hop] = field(default_factory=list)


def walks_in(text: str) -> list[Walk]:
    """The walks of a file like walks.txt. Raises ValueError for a line that is none."""
    walks: list[Walk] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if head := _HEAD.fullmatch(line):
            walks.append(Walk(head[1], head[2]))
        elif (hop := _HOP.fullmatch(line)) and walks:
            walks[-1].hops.append(Hop(f"services/{hop[1]}", hop[2], hop[3], hop[4]))
        else:
            raise ValueError(f"neither the head of a walk nor a hop: {line}")
    return walks


def broken_hops(walk: Walk, tree: Tree) -> Iterator[str]:
    """Yield what is wrong with a walk: a file or a name that is not there, two hops that nothing connects."""
    for hop in walk.hops:
        if hop.path not in tree:
            yield f"{walk.name}: there is no file {hop.path}"
        elif hop.name not in _names(tree[hop.path]):
            yield f"{walk.name}: {hop.path} has no {hop.name}"
    for former, hop in pairwise(walk.hops):
        if former.path in tree and hop.path in tree and not _connected(former, hop, tree):
            how = f"do not both say {hop.by}" if hop.by else "do not import each other"
            yield f"{walk.name}: {former.path} and {hop.path} {how}"


def _connected(former: Hop, hop: Hop, tree: Tree) -> bool:
    if hop.by is not None:
        return all(re.search(rf"\b{hop.by}\b", tree[path]) for path in (former.path, hop.path))
    one, other = Source(former.path, tree[former.path]), Source(hop.path, tree[hop.path])
    return one == other or other.module in imported(one) or one.module in imported(other)


def _names(text: str) -> set[str]:
    """The functions, classes and constants of a module."""
    names: set[str] = set()
    for node in Source("", text).nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names
