"""Which function `oncelog run` runs: a bad name gets an error that says what is there. What `oncelog.run` shows of an
error that ends it."""

import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import InvalidArgument, OncelogError, StoreMismatch
from oncelog_effects.cli.run.loading import load
from oncelog_effects.programs import program
from oncelog_effects.testing import MemoryEffects

SHOP = """
from sqlalchemy import create_engine
from oncelog_effects import SqlEffects, process

class Of:
    @process("orders", subscription="nested", effects=SqlEffects(create_engine("sqlite://")))
    def book(message, connection): ...

@process("orders", subscription="billing", effects=SqlEffects(create_engine("sqlite://")))
def book(message, connection): ...

def plain(message, connection): ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a name of its own in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    (tmp_path / f"{name}_broken.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / f"{name}_runs.py").write_text(f"{SHOP}\nimport oncelog\noncelog.run(book)\n")
    (tmp_path / f"{name}_needs.py").write_text("import no_such_thing_at_all\n")
    return name


def test_function_is_found(shop: str) -> None:
    assert [load(f"{shop}:{name}").subscription for name in ("book", "Of.book")] == ["billing", "nested"]


@pytest.mark.asyncio
async def test_module_that_runs_itself_is_told_to_wait_for_main(shop: str) -> None:
    """With the place in the application: as the command does, inside of an event loop."""
    with pytest.raises(InvalidArgument, match=r'under `if __name__ == "__main__":`.*_runs.py, line 15\)'):
        load(f"{shop}_runs:book")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{}", "give MODULE:NAME"), ("{}:", "give MODULE:NAME"), (":book", "give MODULE:NAME"),
        ("{}:cook", "cook of module .* is not a function that @oncelog.process has made: it has book"),
        ("{}:plain", "is not a function that @oncelog.process has made: it has book"),
        ("{}_gone:book", "there is no module .*_gone in /"),
        ("{}.orders:book", "there is no module"),
        ("{}_broken:book", "ZeroDivisionError: division by zero .*_broken.py, line 2"),
        ("{}_needs:book", "ModuleNotFoundError: No module named 'no_such_thing_at_all'"),
    ],
)  # fmt: skip
def test_bad_name_is_told(shop: str, name: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told) as error:
        load(name.format(shop))
    assert error.value.details["field"] == "functions"


@oncelog.process("orders", subscription="billing", effects=MemoryEffects())
async def book(message: oncelog.Message, connection: Any) -> None:
    raise AssertionError("never runs")


async def ends(_: Any, connecting: Coroutine[Any, Any, oncelog.AsyncClient], *_more: Any) -> None:
    """As a program whose database was replaced, deep inside."""
    connecting.close()
    try:
        raise KeyError("of a driver")
    except KeyError as error:
        raise StoreMismatch("the effects are in another store: start the program with that one") from error


def test_error_is_shown_without_the_frames_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text says what helps; the frames are those of the caller, and one of `run`."""
    monkeypatch.setattr(program, "run_until_signal", ends)
    with pytest.raises(OncelogError, match="in another store") as raised:
        oncelog.run(book)
    shown = "".join(traceback.format_exception(raised.value))
    assert "KeyError" not in shown
    assert len(traceback.extract_tb(raised.value.__traceback__)) == 2
