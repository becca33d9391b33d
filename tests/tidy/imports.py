"""Imports: what a folder may use. import-linter checks the layers; here are the rules that it cannot express.

The core must give the same outcome in every run. So it uses only those parts of the standard library that involve
neither I/O nor a clock nor chance, and never iterates over a set, whose order differs between interpreters.
"""

import ast
import sys
from collections.abc import Container, Iterator, Sequence

from tests.tidy.source import CORES, DISTRIBUTIONS, Rule, Source, each

_IMPURE = {
    "asyncio", "concurrent", "contextvars", "datetime", "fcntl", "ftplib", "glob", "http", "locale", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "platform", "queue", "random", "resource", "sched", "secrets", "select",
    "selectors", "shelve", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid", "warnings", "weakref", "_thread",
}  # fmt: skip
_CORE_MODULES = sys.stdlib_module_names - _IMPURE
_CORE = "services/oncelog/core"
#: {tests of the core of a distribution beside the log: that core}
_TESTS_OF_CORES = {"tests/doors/core": "oncelog_doors.core.", "tests/effects/core": "oncelog_effects.core."}
_PACKAGES = tuple(f"{folder.removeprefix('services/')}." for folder in DISTRIBUTIONS)
#: Where one question is open at a time: a coroutine that awaits its ports, which its caller gives. It cannot await
#: anything else, because the core does not import asyncio.
_PROCEDURES = {f"{_CORE}/http_publish/idempotency.py", f"{_CORE}/records/id_claim.py"}


def imported(source: Source) -> Iterator[str]:
    """Yield the dotted name of every import; for `from a import b` both a and a.b, for b may be a module."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def core_is_pure(source: Source) -> Iterator[str]:
    """The core imports itself and the pure part of the standard library; acknowledgements also compressed bitmaps, one
    module the libraries of compression, and one the errors of protobuf, in which clients of Pulsar write."""
    allowed = _CORE_MODULES
    if source.inside(f"{_CORE}/acks", f"{_CORE}/delivery"):
        allowed = allowed | {"pyroaring"}
    if source.path == f"{_CORE}/formats/compression.py":
        allowed = allowed | {"cramjam", "lz4", "zstandard"}
    if source.path == f"{_CORE}/formats/pulsar.py":
        allowed = allowed | {"google"}
    own = ("oncelog.core.", *(_package(core) for core in CORES if source.inside(core)))
    for name in imported(source) if source.is_python and source.inside(*CORES) else ():
        if name.split(".")[0] not in allowed and not f"{name}.".startswith(own):
            yield f"the core must not import {name}"


def tests_of_the_core_are_pure(source: Source) -> Iterator[str]:
    """Tests of a core import the core, chance with a seed, and stories: no clock, no file, no process."""
    own = {*_CORE_MODULES, "cramjam", "hypothesis", "lz4", "pytest", "random", "tracemalloc", "zstandard"}
    ours: tuple[str, ...] = ("oncelog.core.", "tests.core.", "tests.stories.")
    for tests, core in _TESTS_OF_CORES.items():
        if source.inside(tests):
            ours = (*ours, core, f"{tests.replace('/', '.')}.")
    for name in imported(source) if source.is_python and source.inside("tests/core", *_TESTS_OF_CORES) else ():
        if name.split(".")[0] not in own and not f"{name}.".startswith(ours):
            yield f"a test of the core must not import {name}"


#: {folder of tests: the distributions beside the log that they need}. What all are tested with, as the simulation, is
#: not in it.
_ALONE = {
    "tests/contract": set[str](),
    "tests/cluster": set[str](),
    "tests/doors": {"oncelog_doors"},
    "tests/effects": {"oncelog_effects"},
    "tests/spark": {"oncelog_spark"},
}
#: Tests of several distributions.
_TOGETHER = {
    "tests/cluster/cli/test_cli_tables.py",
    "tests/cluster/clients/test_security.py",
    "tests/cluster/clients/test_silent_peer.py",
    "tests/cluster/metadata/test_metadata_lookup.py",
    "tests/effects/cluster/test_mirror_compare.py",
}


def distributions_are_tested_alone(source: Source) -> Iterator[str]:
    """The tests of a distribution run where the others are not installed."""
    needed = next((its for folder, its in _ALONE.items() if source.is_python and source.inside(folder)), None)
    if needed is None or source.path in _TOGETHER:
        return
    others = {each.rstrip(".") for each in _PACKAGES} - {"oncelog"} - needed
    for name in imported(source):
        if name.split(".")[0] in others:
            yield f"a test of {source.path.split('/')[1]} must not import {name}"
        if name.startswith(("tests.doors.", "tests.effects.", "tests.spark.", "tests.lab.")) and not name.startswith(
            f"tests.{source.path.split('/')[1]}."
        ):
            yield f"a test of {source.path.split('/')[1]} must not import {name}"


def _package(folder: str) -> str:
    """services/x/y as x.y."""
    return f"{folder.removeprefix('services/').replace('/', '.')}."


def core_is_silent_and_ordered(source: Source) -> Iterator[str]:
    """The core opens and prints nothing, awaits nothing but the ports of a procedure, and iterates over no set."""
    for node in source.nodes if source.is_python and source.inside(*CORES) else ():
        if isinstance(node, ast.Call) and _called(node) in {"open", "print", "input", "eval", "exec"}:
            yield f"line {node.lineno}: the core must not call {_called(node)}"
        if isinstance(node, ast.AsyncFunctionDef | ast.Await) and source.path not in _PROCEDURES:
            yield f"line {node.lineno}: the core must not await"
        if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            yield f"line {node.iter.lineno}: the core must not iterate over a set"


def grpc_errors_in_rpc(source: Source) -> Iterator[str]:
    """gRPC's errors and status codes are translated once, in rpc/; elsewhere our own errors are caught."""
    if not source.is_python or not source.inside("services") or source.inside("services/oncelog/rpc"):
        return
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "grpc" in ast.unparse(node.type):
            yield f"line {node.lineno}: except {ast.unparse(node.type)}"
        if isinstance(node, ast.Attribute | ast.Name) and "StatusCode" in {
            getattr(node, "attr", ""),
            getattr(node, "id", ""),
        }:
            yield f"line {node.lineno}: a status code"


def no_dead_modules(sources: Sequence[Source]) -> Iterator[str]:
    """Every module of the package is imported, or started by its dotted name, somewhere else."""
    python = [source for source in sources if source.is_python]
    known = {name: source.path for source in python for name in [source.module]}
    used: set[str] = set()
    for source in python:
        used.update(name for name in imported(source) if known.get(name) != source.path)
        used.update(name for name in _quoted(source) if known.get(name) != source.path)
    for name, path in known.items():
        if path.startswith("services/") and not path.endswith(("/__init__.py", "/__main__.py")) and name not in used:
            yield f"{path}: nothing imports {name}"


def no_circles(sources: Sequence[Source]) -> Iterator[str]:
    """No module imports one that imports it, through others either; inside of a function and for types counts, too."""
    product = [source for source in sources if source.is_python and source.inside(*DISTRIBUTIONS)]
    known = {source.module for source in product}
    needs = {source.module: set(_needed(source, known)) - {source.module} for source in product}
    before = -1
    while before != len(needs):
        before = len(needs)
        inner = needs.keys() & set().union(*needs.values())
        needs = {name: needs[name] & inner for name in inner if needs[name] & inner}
    if needs:
        yield f"a circle of imports: {', '.join(sorted(needs))}"


def _needed(source: Source, known: Container[str]) -> Iterator[str]:
    """The modules that it imports: of `from a import b`, a.b if that is a module, else a."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)


def _quoted(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_PACKAGES):
            yield node.value.split(":")[0]


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _called(node) in {"set", "frozenset"}
    return isinstance(node, ast.Set | ast.SetComp)


def _in(folder: str, text: str) -> tuple[Source, ...]:
    return (Source(f"services/oncelog/{folder}/x.py", text),)


_EXCEPT = "try: f()\nexcept grpc.aio.AioRpcError: g()"
_CODE = "code = grpc.StatusCode.OK"

RULES = (
    Rule(
        "the core imports the core and what is pure",
        each(core_is_pure),
        (
            _in("core", "import time"),
            _in("core", "from random import choice"),
            _in("core", "from oncelog.rpc import codec"),
            _in("core", "import crc32c"),
            _in("core/formats", "from google.protobuf.message import Message"),
            _in("core/publishing", "import pyroaring"),
            _in("core", "from oncelog_effects.core.effects import ordered"),
            (Source("services/oncelog_effects/core/x.py", "import time"),),
            (Source("services/oncelog_doors/core/x.py", "from oncelog_effects.core import y"),),
        ),
        (
            *_in("core", "import struct\nfrom oncelog.core.ids import LedgerId"),
            *_in("core/delivery", "from pyroaring import BitMap64"),
            Source(
                "services/oncelog_effects/core/x.py", "from oncelog.core import ids\nfrom oncelog_effects.core import y"
            ),
        ),
    ),
    Rule(
        "tests of the core are pure",
        each(tests_of_the_core_are_pure),
        (
            (Source("tests/core/test_x.py", "import time"),),
            (Source("tests/core/test_x.py", "from oncelog.runtime import process"),),
            (Source("tests/core/test_x.py", "from tests.contract import fake_cluster"),),
            (Source("tests/doors/core/test_x.py", "from oncelog_doors.pulsar import frames"),),
        ),
        (
            Source("tests/core/test_x.py", "import random\nfrom tests.core.builders import batch"),
            Source("tests/contract/test_x.py", "import time"),
        ),
    ),
    Rule(
        "distributions are tested alone",
        each(distributions_are_tested_alone),
        (
            (Source("tests/contract/test_x.py", "from oncelog_effects import SqlEffects"),),
            (Source("tests/cluster/test_x.py", "from tests.effects import postgres_process"),),
            (Source("tests/effects/test_x.py", "import oncelog_spark.session"),),
        ),
        (
            Source("tests/effects/test_x.py", "from oncelog_effects import x\nfrom tests.effects import y"),
            Source("tests/simulation/x.py", "from oncelog_effects.core import y"),
        ),
    ),
    Rule(
        "the core opens and prints nothing, awaits ports alone and iterates over no set",
        each(core_is_silent_and_ordered),
        (
            _in("core", "open('x')"),
            _in("core", "print('x')"),
            _in("core", "async def f(): pass"),
            _in("core", "[a for a in {b for b in c}]"),
            _in("core", "for a in set(b): pass"),
        ),
        _in("core", "x.open()\n[a for a in sorted({b for b in c})]"),
    ),
    Rule(
        "errors and codes of gRPC stay in rpc",
        each(grpc_errors_in_rpc),
        (_in("cli", _EXCEPT), _in("topic_owner", _CODE)),
        (*_in("rpc", _EXCEPT), *_in("rpc", _CODE)),
    ),
    Rule(
        "no module is dead",
        no_dead_modules,
        (_in("core", "pass"),),
        (*_in("core", "pass"), Source("tests/core/test_x.py", "from oncelog.core import x")),
    ),
    Rule(
        "no modules import each other",
        no_circles,
        (
            (
                Source("services/oncelog/x.py", "def f():\n    from oncelog.y import Y"),
                Source("services/oncelog/y.py", "if TYPE_CHECKING:\n    from oncelog.z import Z"),
                Source("services/oncelog/z.py", "from oncelog import x"),
            ),
        ),
        (
            Source("services/oncelog/x.py", "from oncelog.y import Y\nfrom oncelog import z"),
            Source("services/oncelog/y.py", "from oncelog import z"),
            Source("services/oncelog/z.py", ""),
        ),
    ),
)
