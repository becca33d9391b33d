"""What a start loads: nothing that a service without tokens and without Redis does not need."""

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


def test_services_load_neither_cryptography_nor_redis_before_they_are_asked_for() -> None:
    """They are a third of what a start costs, and a process that died is missed until it is there again."""
    assert loaded_by(*SERVICES) == set()


def test_tokens_and_redis_do_load_them() -> None:
    """The control."""
    assert loaded_by("oncelog.runtime.tokens", "oncelog.stores.idempotency_redis") == set(HEAVY)


#: What makes a start slow; --help needs none of it.
SLOW = (
    "grpc", "google.protobuf", "opentelemetry", "httpx", "rich", "kazoo", "fastapi", "asyncio", "numpy", "oncelog.wire",
)  # fmt: skip


def test_help_loads_nothing_heavy() -> None:
    """It is what people meet first, and what completion runs at each key: a command is imported when it is run."""
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "try:\n    import oncelog.cli.__main__ as program; program.main()\n"
        f"except SystemExit:\n    print('LOADED', *(name for name in {SLOW} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pipeline    Run jobs over whole topics, on Spark." in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2], "a sentence is cut at 80 columns"
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_every_command_is_loaded_by_its_name() -> None:
    """A name in the list of commands stands for a command that works, and for no other."""
    group: Any = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS)
    for name in COMMANDS:
        assert group.commands[name].name == name
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0
    assert "no-such" not in group.commands
    assert CliRunner().invoke(app, ["no-such"]).exit_code == 2
    assert "spark" in group.commands["bench"].commands
