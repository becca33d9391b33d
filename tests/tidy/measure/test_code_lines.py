"""What counts as a code line. Each case is a small source and its number."""

import ast
import io
import tokenize

import pytest

from tests.tidy.measure.code_lines import code_lines, full_lines, is_generated
from tests.tidy.source import ROOT

CASES = {
    "empty": ("", 0),
    "comments and blank lines": ("# a\n\n   # b\nx = 1  # c\n", 1),
    "docstring of a module": ('"""One.\n\nTwo."""\n\nimport os\n', 1),
    "docstrings of class and methods": ('class A:\n    """Of A."""\n\n    def f(self):\n        """Of f."""\n', 2),
    "class with its docstring on one line": ('class A: "of A"\n', 1),
    "function that is a docstring only": ('def f():\n    "of f"\n', 1),
    "docstring in two strings": ('def f():\n    ("a"\n     "b")\n    return 1\n', 4),
    "docstring in two strings without brackets": ("def f():\n    'a' \\\n    'b'\n    return 1\n", 3),
    "code behind a docstring": ('"""a"""; x = 1\n', 1),
    "raw docstring": ('r"""\\d"""\nx = 1\n', 1),
    "docstring behind letters of two bytes": ('class É: "é"\nÉ.x = "y"\n', 2),
    "async function": ('async def f():\n    """Of f."""\n    await g()\n', 2),
    "nested functions": ('def f():\n    """Of f."""\n    def g():\n        """Of g."""\n        return 1\n', 3),
    "function below a branch": ('if x:\n    def f():\n        """Of f."""\nelse:\n    y = 1\n', 4),
    "function below except and case": (
        'try:\n a()\nexcept E:\n def f():\n  """f"""\nmatch x:\n case 1:\n  def g():\n   """g"""\n',
        7,
    ),
    "decorators": ("@a\n@b(\n    c,\n)\ndef f():\n    pass\n", 6),
    "text over several lines": ('x = """a\n\n# b\n"""\n', 4),
    "text that is a statement, but not the first one": ('x = 1\n"""a\nb"""\n', 3),
    "text that is no string alone": ('f"""a\nb"""\n', 2),
    "bytes": ('b"a"\n', 1),
    "text with quotes and signs of comments": ("x = 'a # b' + \"c # 'd\"  # e\ny = '\\'#'\n", 2),
    "text with three quotes in it": ('x = """a "b" ""c\\"""\nd"""\n', 2),
    "continued line": ("x = \\\n    1\n", 2),
}


@pytest.mark.parametrize(("text", "lines"), CASES.values(), ids=CASES.keys())
def test_code_lines_are_counted(text: str, lines: int) -> None:
    """Neither blank lines, nor comments, nor docstrings."""
    assert code_lines(text) == lines


def test_tokenizer_counts_the_same_lines() -> None:
    """In the tests of the house, which have all kinds of texts: the tokens of Python's own tokenizer lie on as many
    lines."""
    for path in (ROOT / "tests/tidy").rglob("*.py"):
        text = path.read_text()
        assert code_lines(text) == _lines_with_tokens(text), path


def _lines_with_tokens(text: str) -> int:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    docstrings = {
        (body[0].lineno, body[0].col_offset)
        for body in bodies
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    }
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent and token.start not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def test_lines_of_other_languages_are_those_that_are_not_empty() -> None:
    """Their comments count: no other language has a parser here."""
    assert full_lines("a {\n\n  /* b */\n}\n") == 3


def test_generated_files_are_known() -> None:
    """By their names; tests of the wire are ours."""
    generated = ("services/oncelog/wire/owner_pb2.py", "services/oncelog/wire/__init__.py", "services/x/y_pb2_grpc.py")
    assert all(is_generated(path) for path in generated)
    assert not any(is_generated(path) for path in ("services/oncelog/rpc/frames.py", "tests/wire/test_x.py"))
