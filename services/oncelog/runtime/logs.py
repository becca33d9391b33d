"""Logs: one JSON object a line on stderr, through the standard logging module; that a process serves, on stdout.

    logger.info("ledger closed", extra={"fields": {"ledger_id": 5, "end": 17}})
    {"ts": "2026-11-21T09:41:07.123Z", "level": "info", "logger": "oncelog.…", "msg": "ledger closed", "ledger_id": 5 …}

Rules: a message is constant and its facts are fields, so that lines can be searched. Payloads are never logged: bytes
appear only as their size.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.runtime.descriptors import announce

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_OWN_KEYS = ("ts", "level", "logger", "msg", "error", "trace")


def _shown(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return str(value)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; fields named like the line's own keys get a trailing underscore."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update((f"{name}_" if name in _OWN_KEYS else str(name), value) for name, value in fields.items())
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = error.code if isinstance(error, OncelogError) else type(error).__name__
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_shown, ensure_ascii=False)


def announce_serving(logger: logging.Logger, facts: Mapping[str, str]) -> None:
    """Log that the process serves, with its addresses in `serving`: one line like the others, but on standard output,
    where the program that started the process reads it. At every log level.
    """
    given = {"fields": {"serving": dict(facts)}}
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, "serving", (), None, extra=given)
    why = announce(JsonFormatter().format(record))
    if why:
        logger.warning("cannot announce that the process serves", extra={"fields": {"reason": why}})


def set_up_logs(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Log to `stream` (stderr), replacing the handlers of an earlier call. Raises InvalidArgument."""
    number = LEVELS.get(level.lower())
    if number is None:
        raise InvalidArgument(f"log level must be one of {', '.join(LEVELS)}, not {level!r}", field="log_level")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # These libraries log each connection attempt and each request.
    for name in ("kazoo", "uvicorn.access", "httpx", "asyncio", "opentelemetry"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(True)
