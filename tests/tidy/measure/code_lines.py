"""Code lines: the lines of a Python file that hold something besides a comment or a docstring.

Physical lines would be a bad measure: who wants fewer of them deletes docstrings. So a docstring counts nothing (the
string that is the first statement of a module, class or function), nor does a comment, nor an empty line. A text over
several lines that is no docstring is code, with the empty lines in it. Generated code counts nothing.
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

#: Comments and strings. Python's own tokenizer finds the same lines (a test compares them), in many times the time.
_COMMENT_OR_STRING = re.compile(
    r"""
    \# [^\n]*
    | (?P<string> [A-Za-z]{0,2} (?:
        \"\"\" [^"\\]* (?: (?: \\. | " (?!"") ) [^"\\]* )* \"\"\"
        | ''' [^'\\]* (?: (?: \\. | ' (?!'') ) [^'\\]* )* '''
        | " [^"\\\n]* (?: \\. [^"\\\n]* )* "
        | ' [^'\\\n]* (?: \\. [^'\\\n]* )* '
    ))
    """,
    re.DOTALL | re.VERBOSE,
)
_GENERATED = re.compile(r"_pb2|/wire/kafka_tables\.py$|^services/oncelog/wire/")


def is_generated(path: str) -> bool:
    """Whether a program wrote the file. path: relative to the repository."""
    return _GENERATED.search(path) is not None


def code_lines(text: str) -> int:
    """The number of code lines of a Python file."""
    docstrings = sorted(_docstrings(text))
    begins = [begin for begin, _ in docstrings]

    def code_of(found: re.Match[str]) -> str:
        before = bisect_right(begins, found.start())
        if found["string"] is None or (before and found.start() < docstrings[before - 1][1]):
            return ""
        return "x" + "\nx" * found[0].count("\n")

    return full_lines(_COMMENT_OR_STRING.sub(code_of, text))


def full_lines(text: str) -> int:
    """The number of lines that are not empty: the measure of a file in another language."""
    return sum(1 for line in text.split("\n") if line.strip())


def _docstrings(text: str) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each docstring, as places in the text."""
    lines = text.split("\n")
    begins = [0, *accumulate(len(line) + 1 for line in lines)]

    def place(line: int | None, column_bytes: int | None) -> int:
        assert line is not None
        return begins[line - 1] + len(lines[line - 1].encode()[:column_bytes].decode())

    for node in _documented(ast.parse(text)):
        match node.body:
            case [ast.Expr(ast.Constant(str()) as string), *_]:
                yield place(string.lineno, string.col_offset), place(string.end_lineno, string.end_col_offset)


def _documented(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the module, and each class and function in it. Statements are searched, and no expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
        ]
