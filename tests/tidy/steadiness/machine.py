"""The machine: a test must not depend on what else runs where it runs.

Another process of the machine takes a port that was only looked up, and a busy one takes many times as long. So ports
are claimed, and a wait for something that will be so ends after half a minute at the earliest.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

#: A shorter wait than the lesser one asks whether something does not happen.
UNHURRIED_S = (1, 30)


def free_ports_are_claimed(source: Source) -> Iterator[str]:
    """A port that is free now may be another process's a moment later: claim_port keeps it."""
    if source.is_python and source.inside("services", "tests"):
        for node in _calls(source, "bind"):
            address = node.args[0] if node.args else None
            if isinstance(address, ast.Tuple) and ast.unparse(address.elts[-1]) == "0":
                yield f"line {node.lineno}: a free port without claim_port"


def waits_are_unhurried(source: Source) -> Iterator[str]:
    """A deadline ends a test that would never end, and measures nothing."""
    if source.is_python and source.inside("tests"):
        for call in _calls(source, "until", "until_sync"):
            given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "deadline_s")]
            yield from (f"line {call.lineno}: {ast.unparse(one)} s" for one in given if _hurries(one))
        for node in source.nodes:
            if isinstance(node, ast.Assign) and _hurries(node.value):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                yield from (f"line {node.lineno}: {name}" for name in names if name in {"DEADLINE_S", "_DEADLINE_S"})


def _calls(source: Source, *names: str) -> Iterator[ast.Call]:
    for node in source.nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
            yield node


def _hurries(node: ast.expr) -> bool:
    least, enough = UNHURRIED_S
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and least <= node.value < enough


RULES = (
    Rule(
        "free ports are claimed",
        each(free_ports_are_claimed),
        ((Source("tests/x.py", "probe.bind(('127.0.0.1', 0))"),),),
        (Source("services/x.py", "claim.bind((host, port))"), Source("tests/x.py", "claim_port('127.0.0.1', 0)")),
    ),
    Rule(
        "waits are unhurried",
        each(waits_are_unhurried),
        (
            (Source("tests/x.py", "await until(answers, 20)"),),
            (Source("tests/x.py", "until_sync(answers, deadline_s=5.0)"),),
            (Source("tests/x.py", "DEADLINE_S = 20.0"),),
        ),
        (
            Source("tests/x.py", "await until(answers, 30)\nDEADLINE_S = 40"),
            Source("services/x.py", "DEADLINE_S = 3"),
        ),
    ),
)
