"""What each file of the repository needs: the modules that it imports or starts, the files that it reads.

A module has two nodes. Its path stands for all that it may ever do: its imports, also those inside of functions, and
what its texts name: modules ("oncelog.cli" of `python -m oncelog.cli`, and those that are imported by name when they
are first used) and, in tests, files. `loaded(path)` stands for what happens when it is imported: who imports
`oncelog.core.ids` also runs `oncelog/__init__.py`, but uses none of the SDK, which that file imports later.

The texts of documents count, too: a test that runs the programs of a page needs what these import.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.tidy.source import PRODUCT, Source

_DOTTED = re.compile(
    r"(?<![\w./])(?:oncelog|oncelog_doors|oncelog_effects|oncelog_lab|oncelog_spark|tests)(?:\.[a-zA-Z_]\w*)+"
    r"|(?<=import )oncelog\b|(?<=from )(?:oncelog|oncelog_effects)(?= import)"
)
_HOLD_STATEMENTS = (ast.Module, ast.ClassDef, ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)
#: Commands of `oncelog` that are imported only when they run, and that most tests of the command line never run: a file
#: needs them if it has the word. Otherwise all tests that start a cluster would need Spark's jobs and the lab.
RARE_COMMANDS = {
    "bench": "oncelog_lab.bench.commands",
    "chaos": "oncelog_lab.chaos.commands",
    "demo": "oncelog_lab.demo.command",
    "pipeline": "oncelog_spark.cli.app",
}
_COMMANDS = "services/oncelog/cli/app.py"
#: What tests read besides what they name: {test or folder of tests: folders}.
READS = {
    "tests/effects/cluster/test_cli_effects.py": ("services/",),
    "tests/contract/owner/test_damaged_records.py": ("services/oncelog/metadata_store/",),
    "tests/kubernetes/": ("deploy/", "docker/"),
    "tests/surface/": ("services/", "tests/"),
    "tests/tidy/": ("",),
}


def loaded(path: str) -> str:
    """The node of a module that is only imported."""
    return f"{path} loaded"


class Graph:
    """needs: {node: what it needs}."""

    def __init__(self, tree: Mapping[str, str], gone: Iterable[str] = ()) -> None:
        """tree: {path: text}. gone: paths of files that were deleted, which others may still name."""
        self.tree = tree
        self.needs: defaultdict[str, set[str]] = defaultdict(set)
        paths = [path for path in (*tree, *gone) if path.startswith(("services/", "tests/")) and path.endswith(".py")]
        #: {dotted name: path}
        self._modules = {Source(path, "").module: path for path in paths}
        self._paths = {*tree, *gone}
        #: {folder: files directly in it that are not Python}
        self._data: defaultdict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            if not path.endswith(".py"):
                self._data[path.rpartition("/")[0]].append(path)
        for path in paths:
            self._add_module(path, tree.get(path, ""))
        for path, text in tree.items():
            if path.endswith((".md", ".ini", ".toml", ".yaml", ".sql")):
                self._add_named(path, text)

    def dependents(self, changed: Iterable[str]) -> set[str]:
        """The files that need one of these, directly or not, and these themselves."""
        users: defaultdict[str, list[str]] = defaultdict(list)
        for node, needed in self.needs.items():
            for each in needed:
                users[each].append(node)
        waiting = [node for path in changed for node in (path, loaded(path))]
        found = set(waiting)
        while waiting:
            more = [user for user in users[waiting.pop()] if user not in found]
            found.update(more)
            waiting += more
        return {node for node in found if node in self._paths}

    # --- modules ------------------------------------------------------------------------------------------------------

    def _add_module(self, path: str, text: str) -> None:
        module = ast.parse(text)
        package = _package(path)
        self.needs[path].add(loaded(path))
        for name in _imports(_executed(module), package):
            self._add_import(loaded(path), name)
        nodes = list(ast.walk(module))
        for name in _imports(nodes, package):
            self._add_import(path, name)
        docstrings = {id(string) for string in _docstrings(nodes)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                self._add_text(path, node.value)

    def _add_text(self, path: str, text: str) -> None:
        """What a text of a module names. The product names modules alone; its sentences, such as errors, start none."""
        if path.startswith("tests/"):
            self._add_named(path, text)
            self._add_file(path, text)
        elif _DOTTED.fullmatch(text):
            self._add_named(path, text)
        if not path.startswith(tuple(f"{folder}/" for folder in PRODUCT)):
            self._add_command(path, text)

    def _add_import(self, node: str, name: str) -> None:
        """name: dotted; its last part need not be a module."""
        known = name if name in self._modules else name.rpartition(".")[0]
        if known not in self._modules:
            return
        self.needs[node].add(self._modules[known])
        while known := known.rpartition(".")[0]:
            if known in self._modules:
                self.needs[node].add(loaded(self._modules[known]))

    def _add_named(self, path: str, text: str) -> None:
        """The modules that a text names, also by something in them, such as "oncelog.cli.app:app"."""
        for found in _DOTTED.findall(text):
            name = found
            while name.count(".") > 1 and name not in self._modules:
                name = name.rpartition(".")[0]
            if name not in self._modules or (path == _COMMANDS and name in RARE_COMMANDS.values()):
                continue
            for module in (name, *self._loaded_by_name(name)):
                self._add_import(path, module)

    def _loaded_by_name(self, package: str) -> Iterator[str]:
        """What a program loads that gets the name of a package: Python its __main__, Django all of an application."""
        if f"{package}.apps" in self._modules:
            yield from (module for module in self._modules if module.startswith(f"{package}."))
        elif f"{package}.__main__" in self._modules:
            yield f"{package}.__main__"

    def _add_command(self, path: str, text: str) -> None:
        command = RARE_COMMANDS.get(text.split(" ", 1)[0])
        if command is not None:
            self._add_import(path, command)

    def _add_file(self, path: str, text: str) -> None:
        """The file, or the folder of data beside the test, that a text of a test names."""
        folder = path.rpartition("/")[0]
        for place in (text, f"docs/{text}", f"{folder}/{text}"):
            if place in self._paths:
                self.needs[path].add(place)
        self.needs[path].update(self._data.get(f"{folder}/{text}", ()))


def _package(path: str) -> str:
    """The dotted name of the package that a module of this path lies in, or is."""
    module = Source(path, "").module
    return module if path.endswith("/__init__.py") else module.rpartition(".")[0]


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    """Yield the dotted name of each import; of `from a import b` it is a.b."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            outer = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*outer, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _executed(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported: not those of functions, nor those for type checkers."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        elif isinstance(node, _HOLD_STATEMENTS):
            waiting += ast.iter_child_nodes(node)


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str()) as string), *_]:
                    yield string
