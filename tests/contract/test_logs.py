"""Logs: one JSON object a line, searchable by field, free of payloads."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner
from oncelog.runtime.logs import JsonFormatter, set_up_logs

logger = logging.getLogger("oncelog.test")


def _line(**record: Any) -> dict[str, Any]:
    fields = record.pop("fields", None)
    made = logging.LogRecord("oncelog.test", logging.INFO, "x.py", 1, record["msg"], (), record.get("exc_info"))
    if fields is not None:
        made.__dict__["fields"] = fields
    text = JsonFormatter().format(made)
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, given back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_has_time_level_logger_message_and_fields() -> None:
    """What every search begins with."""
    line = _line(msg="ledger closed", fields={"ledger_id": 5, "end": -1})
    assert line.pop("ts").endswith("Z")
    assert line == {"level": "info", "logger": "oncelog.test", "msg": "ledger closed", "ledger_id": 5, "end": -1}


def test_payloads_are_shown_by_their_size_alone() -> None:
    """Messages belong to their owners, and not into logs."""
    line = _line(msg="x", fields={"batch": b"secret", "view": memoryview(b"secret"), "list": [b"secret"]})
    assert (line["batch"], line["view"], line["list"]) == ("<6 bytes>", "<6 bytes>", ["<6 bytes>"])


def test_a_field_cannot_replace_a_key_of_the_line() -> None:
    """A field named `level` must not hide an error from a search."""
    line = _line(msg="x", fields={"level": "none"})
    assert (line["level"], line["level_"]) == ("info", "none")


@pytest.mark.parametrize(("error", "name"), [(NotOwner("look again"), "not_owner"), (KeyError("x"), "KeyError")])
def test_an_error_has_its_name_and_its_trace(error: Exception, name: str) -> None:
    """The name of a core error is the one of metrics and answers."""
    try:
        raise error
    except type(error):
        line = _line(msg="x", exc_info=sys.exc_info())
    assert line["error"] == name
    assert line["trace"].startswith("Traceback")


def test_the_level_decides_what_is_written(root: logging.Logger) -> None:
    """Below it nothing is; libraries that chat are heard from warning on."""
    stream = io.StringIO()
    set_up_logs("info", stream=stream)
    logger.debug("no")
    logging.getLogger("kazoo.client").info("no")
    logger.info("yes")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["yes"]
    assert len(root.handlers) == 1


def test_an_unknown_level_is_refused() -> None:
    """Silence by mistake is worse than no start."""
    with pytest.raises(InvalidArgument, match="loud"):
        set_up_logs("loud")
