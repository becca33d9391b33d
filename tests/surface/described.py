"""What the tree describes of itself: REST, help, settings, errors, protocols, the SDK's names, metrics, the chart.

Each function yields (file name, text). No process is started but helm and the programs that print their help.
"""

import ast
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, cast, get_type_hints

import typer
import yaml
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from typer.testing import CliRunner

import oncelog
from oncelog import wire
from oncelog.cli.app import app
from oncelog.cli.failures import Exit
from oncelog.core.errors import BY_CODE, OncelogError
from oncelog.metadata.app import new_app
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.problems import problem
from oncelog.rpc.status import code_of
from oncelog.runtime import settings
from tests.kubernetes import chart
from tests.tidy.source import repository

Files = Iterator[tuple[str, str]]
COLUMNS = 100
SERVICES = ("topic_owner", "log_storage", "metadata")
#: Certificates and secrets that the chart draws at random, and checksums of them.
_DRAWN = re.compile(r"^[A-Za-z0-9+/=]{24,}$|^[0-9a-f]{64}$")
_INSTRUMENTS = ("observe_count", "observe_level", "latency")


def rest() -> Files:
    document = new_app(cast("Coordination", None)).openapi()
    yield "openapi.json", json.dumps(document, indent=1, sort_keys=True)


def help_texts() -> Files:
    """Of every command, and of every service."""
    shown = {"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"}
    texts = []
    for path in _commands(typer.main.get_command(app), ()):
        answer = CliRunner().invoke(app, [*path, "--help"], env=shown, terminal_width=COLUMNS)
        assert answer.exit_code == 0, (path, answer.output)
        texts.append(f"$ oncelog {' '.join(path)}\n{answer.output}")
    yield "help/oncelog.txt", "\n".join(texts)
    for service in SERVICES:
        command = (sys.executable, "-m", f"oncelog.{service}", "--help")
        answered = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | shown)
        yield f"help/{service}.txt", answered.stdout


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    for name in sorted(getattr(command, "commands", ())):
        yield from _commands(command.commands[name], (*path, name))


def setting_names() -> Files:
    """Name, type and default; and the comments, which are the help that a setting has."""
    processes: tuple[type[settings.ProcessSettings], ...] = (settings.ProcessSettings, *settings.ALL)
    for process in processes:
        hints, comments = get_type_hints(process), _comments(process)
        lines = [
            f"{settings.variable(f.name)} {hints[f.name].__name__} {settings.shown(f.default)!r}"
            + (f"  # {comments[f.name]}" if f.name in comments else "")
            for f in dataclasses.fields(process)
        ]
        yield f"settings/{process.__name__}.txt", "\n".join(lines)
    yield "settings/client.txt", "\n".join(sorted(settings.CLIENT_VARIABLES))


def _comments(process: type) -> dict[str, str]:
    """{field: the comment above it}."""
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in inspect.getsource(process).splitlines():
        if line.strip().startswith("#:"):
            comment.append(line.strip()[2:].strip())
            continue
        field = re.match(r" {4}(\w+): ", line)
        if field and comment:
            found[field[1]] = " ".join(comment)
        comment = []
    return found


def errors() -> Files:
    """Code, parents, whether to retry, and the statuses. Others belong to modules that may not be loaded."""
    lines = [
        f"{code}: {' < '.join(c.__name__ for c in error.__mro__[:-2])}; retriable {error.retriable}; "
        f"REST {problem(error()).status_code}; gRPC {code_of(error()).name}"
        for code, error in sorted(BY_CODE.items())
        if error.__module__ == OncelogError.__module__
    ]
    yield "errors.txt", "\n".join(lines)
    yield "exit_codes.txt", "\n".join(f"{each.name} {each.value}" for each in Exit)


def protocols() -> Files:
    """Messages, fields, numbers and services."""
    for module in sorted(each.name for each in iter_modules(wire.__path__) if each.name.endswith("_pb2")):
        described = FileDescriptorProto()
        import_module(f"{wire.__name__}.{module}").DESCRIPTOR.CopyToProto(described)
        yield f"protocols/{module}.txt", text_format.MessageToString(described)


def sdk() -> Files:
    """The names of the package, with their signatures and public methods."""
    yield "sdk.txt", "\n".join(line for name in sorted(oncelog.__all__) for line in _signatures(name))


def _signatures(name: str) -> Iterator[str]:
    value = getattr(oncelog, name)
    yield f"{name}{_signature(value)}"
    if inspect.isclass(value):
        for method in sorted(m for m in dir(value) if not m.startswith("_")):
            yield f"{name}.{method}{_signature(inspect.getattr_static(value, method))}"


def _signature(value: Any) -> str:
    """Without the modules of its types: where a class lies is not seen."""
    try:
        return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", str(inspect.signature(getattr(value, "__func__", value))))
    except (TypeError, ValueError):
        return f": {type(value).__name__}"


def declared_metrics() -> Files:
    """Every instrument that a process makes: kind, name, description, unit."""
    calls = (
        node
        for source in repository()
        if source.is_python and source.inside("services")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _INSTRUMENTS
    )
    lines = sorted(
        " ".join((cast("ast.Attribute", call.func).attr, *map(ast.unparse, (*call.args[:2], *_units(call)))))
        for call in calls
        if call.args
    )
    yield "metrics/declared.txt", "\n".join(lines)


def _units(call: ast.Call) -> Iterator[ast.expr]:
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "unit")


def manifests() -> Files:
    """What the chart renders, with each values file of the tests."""
    for name in chart.FILES:
        made = [yaml.safe_dump(_without_draws(each), width=COLUMNS) for each in chart.rendered(name)]
        yield f"chart/{name}.yaml", "---\n".join(made)


def _without_draws(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_draws(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_draws(value) for value in node]
    return "<drawn>" if isinstance(node, str) and _DRAWN.match(node) else node
