"""All commands of `oncelog`: how many there are, and what their help looks like at 80 columns."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.cli.compact_help import CONNECTION_OPTIONS
from oncelog.cli.json_fields import FIELDS

#: rpk and nats have 30 to 60, for less. Above this, a new command replaces another one, or becomes an option.
COMMANDS_MAX = 110
#: What a terminal shows.
LINES_MAX, COLUMNS = 60, 80


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all commands and groups."""
    yield path
    for name in getattr(command, "commands", ()):
        yield from commands(command.commands[name], *path, name)


PATHS = list(commands(typer.main.get_command(app)))
GROUPS = {path[:-1] for path in PATHS if path}


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": str(COLUMNS)})
    assert result.exit_code == 0, (words, result.stderr)
    return result.stdout


def test_commands_are_few() -> None:
    """A user looks for a command in lists that can be read."""
    assert len([path for path in PATHS if path not in GROUPS]) <= COMMANDS_MAX


@pytest.mark.parametrize(
    "command", ["read", "consume", "admin subscriptions create", "admin subscriptions seek", "effects redo"]
)
def test_help_says_which_zone_a_time_without_one_is_in(command: str) -> None:
    """The console takes such a time as UTC, and says so at its fields."""
    assert "Without an offset it is local time." in " ".join(shown(*command.split(), "--help").split())


def test_help_of_each_command_fits_a_terminal() -> None:
    """No line is too long, and the beginning has not left the screen."""
    too_large = []
    for path in PATHS:
        lines = shown(*path, "--help").splitlines()
        if len(lines) > LINES_MAX or max(map(len, lines)) > COLUMNS:
            too_large.append((" ".join(path), len(lines), max(map(len, lines))))
    assert too_large == []


def test_no_sentence_is_cut_in_a_list_of_commands() -> None:
    """It goes on in the next line."""
    for path in GROUPS:
        listed = shown(*path, "--help").partition("Commands:")[2]
        assert listed, path
        assert "..." not in listed.replace("COMMAND...", ""), path


def test_connection_options_are_one_line_and_a_page() -> None:
    """The page has each of them, with its variable; a command has the line."""
    page = shown("help", "connection")
    assert [each.flag for each in CONNECTION_OPTIONS if each.flag not in page] == []
    assert "ONCELOG_TLS_CA_FILE" in page
    told = shown("admin", "tenants", "list", "--help")
    assert "Connection options: --admin-url, --url, --token-file," in told
    assert "PEM file" not in told


@pytest.mark.parametrize("words", [("admin", "topics", "list"), ("mirror", "run"), ("admin",), ()])
def test_help_of_a_command_is_that_of_its_option(words: tuple[str, ...]) -> None:
    assert shown("help", *words).strip() == shown(*words, "--help").strip()


def test_help_of_what_is_no_command_is_refused() -> None:
    """With the name that was meant."""
    result = CliRunner().invoke(app, ["help", "admin", "topic"])
    assert result.exit_code == 2
    assert "No such command 'topic'. Did you mean 'topics'?" in result.stderr
    assert CliRunner().invoke(app, ["help", "read", "topic"]).exit_code == 2


def test_fields_of_json_are_those_of_commands() -> None:
    assert {tuple(command.split()) for command in FIELDS} <= set(PATHS)
    page = shown("help", "json")
    assert max(map(len, page.splitlines())) <= COLUMNS
    assert "differing (duplicates in batches" in page
