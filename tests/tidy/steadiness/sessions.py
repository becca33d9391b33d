"""Sessions with ZooKeeper: on a busy machine a short one ends although its process lives.

Tests give sessions half a minute, and end by command those that a test wants to end (tests/cluster/sessions.py).
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

SESSION_MS_MIN = 30_000
#: {file: why sessions are shorter there}
SHORTER = {
    "tests/cluster/sessions.py": "AWAY_MS: a process without a connection for so long looks whether ZooKeeper is older",
    "tests/cluster/metadata/test_metadata_process.py": "one test that a session ends by its timeout, as for users",
    "tests/contract/stores/test_stores_zookeeper.py": "a client leaves a silent server after a part of its session",
    "tests/effects_comparison/": "sessions of Kafka's consumers",
}
_NAMES = ("session_timeout_ms", "away_ms")


def sessions_outlast_pauses(source: Source) -> Iterator[str]:
    """A pause of a busy machine must not end the session of a process that lives."""
    if not source.is_python or not source.inside("tests") or source.path.startswith(tuple(SHORTER)):
        return
    for name, value, line in _given(source):
        milliseconds = _number(value)
        if _is_session(name) and milliseconds is not None and milliseconds < SESSION_MS_MIN:
            yield f"line {line}: a session of {milliseconds} ms"


def _given(source: Source) -> Iterator[tuple[str, ast.expr, int]]:
    """Names and values: of arguments, of entries of dicts, and of constants."""
    for node in source.nodes:
        match node:
            case ast.keyword(arg=str(name), value=value):
                yield name, value, value.lineno
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value, value.lineno
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value, node.lineno
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value, node.lineno


def _is_session(name: str) -> bool:
    return name.lower().removeprefix("oncelog_").endswith(_NAMES)


def _number(value: ast.expr) -> int | None:
    """Of a number, or of one in a text, as in an environment."""
    if not isinstance(value, ast.Constant) or isinstance(value.value, bool):
        return None
    match value.value:
        case int(number):
            return number
        case str(text) if text.isdecimal():
            return int(text)
    return None


RULES = (
    Rule(
        "sessions outlast pauses",
        each(sessions_outlast_pauses),
        (
            (Source("tests/x.py", "Cluster.running(place, session_timeout_ms=2_000)"),),
            (Source("tests/x.py", "settings = {'session_timeout_ms': 29_999}"),),
            (Source("tests/x.py", "start('owner', ONCELOG_SESSION_TIMEOUT_MS='2000')"),),
            (Source("tests/x.py", "SETTINGS = {'ONCELOG_SESSION_TIMEOUT_MS': '2000'}"),),
            (Source("tests/x.py", "SESSION_TIMEOUT_MS = 4_000"),),
        ),
        (
            Source("tests/x.py", "Cluster.running(place, session_timeout_ms=30_000)\nSESSION_TIMEOUT_MS = 60_000"),
            Source("tests/x.py", "Cluster.running(place, session_timeout_ms=SESSION_TIMEOUT_MS)"),
            Source("services/x.py", "SESSION_TIMEOUT_MS = 6_000"),
            *(Source(f"{path}x.py" if path.endswith("/") else path, "SESSION_TIMEOUT_MS = 4_000") for path in SHORTER),
        ),
    ),
)
