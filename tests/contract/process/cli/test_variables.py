"""A misspelt variable of the environment is told: by the command line and in programs with a warning, by services
with an error."""

import os
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.settings import ALL, load, unknown_variables
from tests.contract.process.cli.test_commands import PATHS

WARNING = "warning: unknown variables have no effect: "


def said(*words: str, **variables: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words or ("context", "list")), env={"HOME": "/absent", **variables})
    return result.exit_code, result.stdout, result.stderr


def test_unknown_variable_is_told_once_with_the_nearest_name() -> None:
    """It is no error, and standard output has none of it."""
    code, output, errors = said(ONCELOG_URLL="oncelog://a:1", ONCELOG_TOKENFILE="x")
    assert (code, output) == (0, "")
    assert errors == (
        f"{WARNING}ONCELOG_URLL (the nearest known one is ONCELOG_URL), "
        "ONCELOG_TOKENFILE (the nearest known one is ONCELOG_TOKEN_FILE)\n"
    )


def test_variables_of_all_programs_are_known() -> None:
    """Settings of services, too: one environment may serve all. Each variable of an option is one of them."""
    _, _, errors = said(
        ONCELOG_URL="oncelog://a:1", ONCELOG_WRITE_QUORUM="2", ONCELOG_DATABASE="x", ONCELOG_RELAY_DATABASE="y",
        ONCELOG_EFFECTS_REDIS="z", ONCELOG_CLOSED_LEDGERS="owner", OTHER_URLL="1", ONCELOG="1",
    )  # fmt: skip
    assert errors == ""
    read = {variable for path in PATHS for parameter in command_at(path).params for variable in _envvars(parameter)}
    assert len(read) >= 8
    assert unknown_variables(dict.fromkeys(read, "")) == {}


def command_at(path: tuple[str, ...]) -> Any:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return command


def _envvars(parameter: Any) -> list[str]:
    given = parameter.envvar
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def test_what_kubernetes_sets_for_a_service_is_not_told() -> None:
    """A pod beside a Service `oncelog-metadata` has these, unless it has enableServiceLinks: false."""
    _, _, errors = said(
        ONCELOG_METADATA_PORT="tcp://10.0.0.1:8080", ONCELOG_METADATA_SERVICE_HOST="10.0.0.1",
        ONCELOG_METADATA_SERVICE_PORT="8080", ONCELOG_METADATA_SERVICE_PORT_GRPC="6650",
        ONCELOG_METADATA_PORT_8080_TCP="tcp://10.0.0.1:8080", ONCELOG_METADATA_PORT_8080_TCP_ADDR="10.0.0.1",
    )  # fmt: skip
    assert errors == ""
    assert "ONCELOG_METADATA_PORT (" in said(ONCELOG_METADATA_PORT="8080")[2]


def test_hostile_and_many_names_are_one_line() -> None:
    """Ten are named."""
    many = {f"ONCELOG_X{number:02}": "1" for number in range(30)}
    _, _, errors = said(**many)
    assert errors.endswith(" and 20 more\n")
    _, _, errors = said(**{"ONCELOG_\x1b[2J\nA": "1"})
    assert (errors.count("\n"), "\x1b" in errors) == (1, False)


_PROGRAM = """
import asyncio
import oncelog

async def main():
    for _ in range(2):
        await (await oncelog.connect("oncelog://127.0.0.1:1")).close()

asyncio.run(main())
oncelog.Client("oncelog://127.0.0.1:1").close()
"""
_PRINTS_FIRST = """
import os
from oncelog.runtime.variables import warn_of_unknown
warn_of_unknown(os.environ)
"""


@pytest.mark.parametrize(("program", "prefix"), [(_PROGRAM, ""), (_PRINTS_FIRST + _PROGRAM, "warning: ")])
def test_program_that_connects_is_warned_once(program: str, prefix: str) -> None:
    """In its log, with the sentence of the command line; not again behind a command that has printed it."""
    environment = {**os.environ, "ONCELOG_ULR": "oncelog://a:1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    said = "unknown variables have no effect: ONCELOG_ULR (the nearest known one is ONCELOG_URL)\n"
    assert ran.stderr == prefix + said


@pytest.mark.parametrize("service", ALL)
def test_service_refuses_it_at_its_start(service: Any) -> None:
    """A setting that is not in force could lose messages, such as a misspelt write quorum."""
    with pytest.raises(InvalidArgument, match="unknown setting ONCELOG_URLL; the nearest known one is ONCELOG_URL"):
        load(service, {"ONCELOG_URLL": "oncelog://a:1"})
    load(service, {"ONCELOG_URL": "oncelog://a:1", "ONCELOG_RELAY_DATABASE": "sqlite:///a.db"})
