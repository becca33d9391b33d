"""Logs: one JSON object per line, searchable by field, without payloads."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner
from oncelog.runtime.logs import JsonFormatter, announce_serving, set_up_logs

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


def test_log_line_has_time_level_logger_message_and_fields() -> None:
    """Searches of logs rely on these keys."""
    line = _line(msg="ledger closed", fields={"ledger_id": 5, "end": -1})
    assert line.pop("ts").endswith("Z")
    assert line == {"level": "info", "logger": "oncelog.test", "msg": "ledger closed", "ledger_id": 5, "end": -1}


def test_only_the_size_of_a_payload_is_logged() -> None:
    """Payloads are the users' data and must not be in logs."""
    line = _line(msg="x", fields={"batch": b"secret", "view": memoryview(b"secret"), "list": [b"secret"]})
    assert (line["batch"], line["view"], line["list"]) == ("<6 bytes>", "<6 bytes>", ["<6 bytes>"])


def test_field_cannot_replace_a_key_of_the_log_line() -> None:
    """A field named `level` must not hide an error from a search."""
    line = _line(msg="x", fields={"level": "none"})
    assert (line["level"], line["level_"]) == ("info", "none")


@pytest.mark.parametrize(("error", "name"), [(NotOwner("look again"), "not_owner"), (KeyError("x"), "KeyError")])
def test_logged_error_has_its_name_and_stack_trace(error: Exception, name: str) -> None:
    """The name of a core error is the same in metrics and responses."""
    try:
        raise error
    except type(error):
        line = _line(msg="x", exc_info=sys.exc_info())
    assert line["error"] == name
    assert line["trace"].startswith("Traceback")


def test_lines_below_the_level_are_not_written(root: logging.Logger) -> None:
    """Verbose libraries are logged from warning on."""
    stream = io.StringIO()
    set_up_logs("info", stream=stream)
    logger.debug("no")
    logging.getLogger("kazoo.client").info("no")
    logger.info("yes")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["yes"]
    assert len(root.handlers) == 1


def test_unknown_level_is_refused() -> None:
    """A mistyped level must not silence the log."""
    with pytest.raises(InvalidArgument, match="loud"):
        set_up_logs("loud")


def test_line_that_says_that_a_process_serves_is_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, for the program that started the process; a log pipeline reads both outputs alike."""
    announce_serving(logger, {"address": "127.0.0.1:6650"})
    captured = capsys.readouterr()
    line = json.loads(captured.out)
    assert (line["level"], line["logger"], line["msg"]) == ("info", "oncelog.test", "serving")
    assert line["serving"] == {"address": "127.0.0.1:6650"}
    assert line["ts"].endswith("Z")
    assert captured.err == ""
