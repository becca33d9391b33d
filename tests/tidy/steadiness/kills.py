"""Kills: a test that kills a real process says at which moment, by a condition that it observes.

A kill after some time, or "under load", meets whatever a busy machine has reached by then. See `tests.cluster.kills`.
"""

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

#: Where processes are real.
_FOLDERS = (
    "tests/cluster", "tests/doors", "tests/effects", "tests/lab", "tests/spark", "tests/proofs", "tests/surface",
    "tests/effects_comparison",
)  # fmt: skip
_PROOF = re.compile(r"tests/\w+_proof/")
#: Each has a function that kills, and one that ends what is left. Commands that take too long are killed there, too.
DEFINING = {
    "tests/cluster/kills.py",
    "tests/cluster/cluster_fixture.py",
    "tests/cluster/forked_program.py",
    "tests/cluster/programs.py",
    "tests/cluster/test_kills.py",
    "tests/proofs/session_process.py",
}
#: Their `kill` is of a value in memory, of a pod of a fake, or of a process that has ended.
_OTHERS = {
    "tests/lab/test_demo.py",
    "tests/lab/test_kubernetes.py",
    "tests/spark/sink/test_sink_commit.py",
    "tests/spark/steps.py",
}
_SENDING = {"kill", "killpg", "send_signal", "signal", "pthread_kill"}
_KILLING = {"kill", "kill_all", "kill_supervisor", "kill_sync"}


def kills_wait_for_a_condition(source: Source) -> Iterator[str]:
    """What ends a test, in `finally`, needs none; a process that kills itself has reached the step."""
    if not (source.is_python and (source.inside(*_FOLDERS) or _PROOF.match(source.path))):
        return
    if source.path in DEFINING | _OTHERS:
        return
    endings = {id(node) for try_ in source.nodes if isinstance(try_, ast.Try) for node in _below(try_.finalbody)}
    for node in source.nodes:
        if isinstance(node, ast.Call) and id(node) not in endings:
            yield from (f"line {node.lineno}: {fault}" for fault in _faults(node))


def _faults(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    words = [ast.unparse(argument) for argument in call.args]
    if name in _SENDING and (words[1:] == ["9"] or any(word.endswith("SIGKILL") for word in words)):
        if "os.getpid()" not in words[0]:
            yield f"{ast.unparse(call)} kills without a condition: use tests.cluster.kills"
    elif name in _KILLING and ast.unparse(call.func) != "os.kill":
        conditions = [keyword.value for keyword in call.keywords if keyword.arg == "once"]
        if not conditions:
            yield f"{ast.unparse(call)} has no `once`"
        elif isinstance(conditions[0], ast.Lambda) and isinstance(conditions[0].body, ast.Constant):
            yield f"{ast.unparse(call)} asks nothing: `idle`, `just_seen` and `any_time` say why"


def _below(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _in_test(text: str) -> tuple[Source, ...]:
    return (Source("tests/cluster/test_x.py", text),)


RULES = (
    Rule(
        "kills wait for a condition",
        each(kills_wait_for_a_condition),
        (
            _in_test("os.kill(pid, signal.SIGKILL)"),
            _in_test("os.killpg(process.pid, 9)"),
            _in_test("cluster.signal('owner-1', signal.SIGKILL)"),
            _in_test("process.send_signal(SIGKILL)"),
            _in_test("process.kill()"),
            _in_test("await cluster.kill('owner-1')"),
            _in_test("cluster.kill_all()"),
            _in_test("kill_sync(process, once=lambda: True)"),
            _in_test("try:\n    process.kill()\nfinally:\n    pass"),
            (Source("tests/upgrade_proof/x.py", "process.kill()"),),
        ),
        (
            *_in_test(
                "await kill(process, once=idle)\nawait cluster.kill('owner-1', once=lambda: seen > 3)\n"
                "os.kill(pid, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGKILL)\n"
                "try:\n    pass\nfinally:\n    process.kill()\n"
            ),
            Source("tests/cluster/kills.py", "process.kill()"),
            Source("tests/contract/sdk/x.py", "await owner.kill()"),
            Source("services/oncelog/x.py", "process.kill()"),
        ),
    ),
)
