"""Steadiness, of clocks: that something does not happen is shown by what comes after it, not by a short wait.

On a busy machine nothing happens within a short wait, whatever the code does: such a test cannot fail there. A wait
that has to be short has a named constant, with a comment that says what a slow machine does to it.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

#: A literal wait between 0 and this is a breach. A wait of 0 is one turn of the event loop.
UNHURRIED_S = 30
#: {function: position of its time-out}; a name in front of it must be asyncio's.
WAITS = {"asyncio.wait": None, "asyncio.wait_for": 1, "asyncio.timeout": 0}
#: `until` of less than a second; `tests/tidy/steadiness/machine.py` has the longer ones.
PROBES = {"until": 1, "until_sync": 1}
#: It tests that the deadline of `until` ends it.
TEST_OF_UNTIL = "tests/cluster/test_until.py"


def nothing_happens_is_not_a_short_wait(source: Source) -> Iterator[str]:
    """Wait for what comes after it on the same path, then assert that it has not happened."""
    if not (source.is_python and source.inside("tests")) or source.path == TEST_OF_UNTIL:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            position = {**WAITS, **PROBES}.get(name)
            if name not in WAITS and name not in PROBES:
                continue
            given = [] if position is None else node.args[position : position + 1]
            given += [each.value for each in node.keywords if each.arg in {"timeout", "deadline_s"}]
            bound = 1 if name in PROBES else UNHURRIED_S
            yield from (f"line {node.lineno}: {name} of {ast.unparse(one)} s" for one in given if _is_short(one, bound))


def _is_short(node: ast.expr, bound: float) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and 0 < node.value < bound


RULES = (
    Rule(
        "nothing happens is not a short wait",
        each(nothing_happens_is_not_a_short_wait),
        (
            (Source("tests/x.py", "await asyncio.wait({task}, timeout=0.3)"),),
            (Source("tests/x.py", "async with asyncio.timeout(0.2):\n    pass"),),
            (Source("tests/x.py", "await asyncio.wait_for(task, 5)"),),
            (Source("tests/x.py", "await until(task.done, 0.15)"),),
        ),
        (
            Source("tests/x.py", "await asyncio.wait({task}, timeout=0)\nawait asyncio.wait({task}, timeout=GRACE_S)"),
            Source("tests/x.py", "async with asyncio.timeout(60):\n    await until(task.done, 30)"),
            Source("services/x.py", "await asyncio.wait({task}, timeout=0.3)"),
        ),
    ),
)
