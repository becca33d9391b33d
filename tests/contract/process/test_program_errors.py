"""What `oncelog.run` shows of an error that ends it."""

import traceback
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import OncelogError, StoreMismatch
from oncelog.effects.programs import program
from oncelog.testing import MemoryEffects


@oncelog.process("orders", subscription="billing", effects=MemoryEffects())
async def book(message: oncelog.Message, connection: Any) -> None:
    raise AssertionError("never runs")


async def ends(*_: Any) -> None:
    """As a program whose database was replaced, deep inside."""
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
