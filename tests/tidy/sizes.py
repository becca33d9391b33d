"""Sizes: a file fits a reading, a function a screen.

About 400 lines is the habit of this project (CONTRIBUTING.md). The bound here only stops a file far beyond it.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70  # TigerBeetle's bound
MAIN_LINES_MAX = 40

Function = ast.FunctionDef | ast.AsyncFunctionDef


def file_lines(source: Source) -> Iterator[str]:
    """A file of ours, Python or protocol, has at most 500 lines."""
    lines = len(source.text.splitlines())
    if (source.is_python or source.path.endswith(".proto")) and lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}"


def function_lines(source: Source) -> Iterator[str]:
    """A function has at most 70 lines, its docstring included."""
    for node in ast.walk(source.tree) if source.is_python else ():
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def main_lines(source: Source) -> Iterator[str]:
    """A `__main__` only starts what lives elsewhere."""
    lines = len(source.text.splitlines())
    if source.path.endswith("/__main__.py") and source.inside("services") and lines > MAIN_LINES_MAX:
        yield f"{lines} lines, at most {MAIN_LINES_MAX}"


def _python(lines: int, path: str = "services/oncelog/x.py") -> Source:
    return Source(path, "pass\n" * lines)


def _function_of(lines: int) -> Source:
    return Source("tests/x.py", "def f():\n" + "    pass\n" * (lines - 1))


_MAIN = "services/oncelog/x/__main__.py"

RULES = (
    Rule("a file has at most 500 lines", each(file_lines), ((_python(501),),), (_python(500),)),
    Rule("a function has at most 70 lines", each(function_lines), ((_function_of(71),),), (_function_of(70),)),
    Rule("a __main__ has at most 40 lines", each(main_lines), ((_python(41, _MAIN),),), (_python(40, _MAIN),)),
)
