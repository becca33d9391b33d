"""What a consumer gives without an answer is flushed before a test looks for it.

An acknowledgement whose future is dropped, and the report of what was received, are on their way when the call returns.
A test that then looks at the owner, or at another consumer, finds them there or not, depending on what else runs.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

#: They return when everything that was given before is answered.
ANSWERED = {"flush", "close"}
#: Of the SDK's own modules: they answer for acknowledgements alone, and raise no error.
INNER = {"all_settled", "all_answered"}


def dropped_acknowledgements_are_flushed(source: Source) -> Iterator[str]:
    """A function of a test that drops the future of `ack_nowait` flushes or closes the consumer."""
    if source.is_python and source.inside("tests"):
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                called = {name for call in ast.walk(node) if (name := _called(call))}
                drops = [
                    one for one in ast.walk(node) if isinstance(one, ast.Expr) and _called(one.value) == "ack_nowait"
                ]
                if drops and not called & ANSWERED:
                    yield f"line {drops[0].lineno}: {node.name} drops an acknowledgement, and flushes nothing"


def tests_wait_as_users_do(source: Source) -> Iterator[str]:
    """Users have `flush`, which raises an error when something stays unanswered."""
    if source.is_python and source.inside("tests"):
        for node in source.nodes:
            if isinstance(node, ast.Call) and (name := _called(node)) in INNER:
                yield f"line {node.lineno}: {name} instead of flush"


def _called(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


RULES = (
    Rule(
        "dropped acknowledgements are flushed",
        each(dropped_acknowledgements_are_flushed),
        ((Source("tests/x.py", "async def test_x():\n    consumer.ack_nowait(m)\n    await stats()"),),),
        (
            Source("tests/x.py", "async def test_x():\n    consumer.ack_nowait(m)\n    await consumer.flush()"),
            Source("tests/x.py", "async def test_x():\n    await consumer.ack_nowait(m)"),
            Source("tests/x.py", "async def test_x():\n    acks = [consumer.ack_nowait(m)]"),
            Source("services/x.py", "def work():\n    consumer.ack_nowait(m)"),
        ),
    ),
    Rule(
        "tests wait as users do",
        each(tests_wait_as_users_do),
        ((Source("tests/x.py", "await consumer.all_settled()"),),),
        (Source("tests/x.py", "await consumer.flush()"), Source("services/x.py", "await consumer.all_settled()")),
    ),
)
