"""Which function `oncelog run` runs: a bad name gets an error that says what is there."""

import sys
from pathlib import Path

import pytest

from oncelog.cli.run.loading import load
from oncelog.core.errors import InvalidArgument

SHOP = """
from sqlalchemy import create_engine
from oncelog.effects import SqlEffects, process

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
