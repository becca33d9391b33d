"""Imports at the start: a service without tokens and Redis does not load their packages."""

import subprocess
import sys
from typing import Any

import typer
from typer.testing import CliRunner

from oncelog.cli.app import COMMANDS, app

HEAVY = ("cryptography", "jwt", "redis")
SERVICES = ("oncelog.metadata.service", "oncelog.topic_owner.owner", "oncelog.log_storage.storage_process")


def loaded_by(*modules: str) -> set[str]:
    """Which of the heavy packages are loaded with these modules, in a process of their own."""
    code = f"import sys, {', '.join(modules)}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_services_without_tokens_and_redis_do_not_import_their_packages() -> None:
    """They are a third of the start time, which delays the return of a failed process."""
    assert loaded_by(*SERVICES) == set()


def test_services_with_tokens_and_redis_import_their_packages() -> None:
    """The control."""
    assert loaded_by("oncelog.runtime.tokens", "oncelog.metadata_store.keys.idempotency_redis") == set(HEAVY)


#: What makes a start slow; --help needs none of it.
SLOW = (
    "grpc", "google.protobuf", "opentelemetry", "httpx", "rich", "kazoo", "fastapi", "asyncio", "numpy", "oncelog.wire",
)  # fmt: skip


def test_help_imports_no_heavy_package() -> None:
    """New users call it first, and shell completion calls it often: a command is imported when it runs."""
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "try:\n    import oncelog.cli.__main__ as program; program.main()\n"
        f"except SystemExit:\n    print('LOADED', *(name for name in {SLOW} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pipeline    Run jobs over whole topics, on Spark." in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2], "a sentence is cut at 80 columns"
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_each_listed_command_can_be_imported() -> None:
    """Each name in the list of commands is a working command, and no other name is. It is made once."""
    group: Any = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS)
    for name in COMMANDS:
        assert group.commands[name].name == name
        assert typer.main.get_command(app).commands[name] is group.commands[name]  # type: ignore[attr-defined]
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0
    assert "no-such" not in group.commands
    assert CliRunner().invoke(app, ["no-such"]).exit_code == 2
    assert "spark" in group.commands["bench"].commands
