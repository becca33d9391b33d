"""What a failure inside Spark was: the error of this package that a task ended with, out of Spark's text about it."""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from oncelog.core import errors
from oncelog.core.errors import Fatal, OncelogError

_RAISED = re.compile(r"oncelog\.core\.errors\.(\w+): (.+)")


def failure_of(error: BaseException) -> OncelogError | None:
    """None: it is no failure of Spark's. The code and the message are kept, so that "try again" stays known."""
    if isinstance(error, OncelogError):
        return error
    if not isinstance(error, Py4JError | PySparkException):
        return None
    text = str(error)
    raised = _RAISED.findall(text)
    kind = getattr(errors, raised[-1][0], None) if raised else None
    if isinstance(kind, type) and issubclass(kind, OncelogError):
        return kind(raised[-1][1].strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return Fatal(f"Spark failed: {' '.join(lines[:3])[:600]}")
