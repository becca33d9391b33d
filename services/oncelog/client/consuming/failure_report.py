"""What the log says about the handlers of one run that fail: the traceback of an error when it is new, then counts.

A handler that fails at each message of a backlog fails thousands of times in a second.
"""

import logging
from dataclasses import dataclass

from oncelog.client.values.messages import Message
from oncelog.runtime.application_errors import Kind, SeenErrors, kind_of, reason_of

logger = logging.getLogger(__name__)
#: How often repetitions of one error are counted in a line.
COUNTED_EVERY_S = 5.0


@dataclass(slots=True)
class _Repetitions:
    """since_s: when the first of them came. line, reason: of the last one."""

    since_s: float
    count: int = 0
    line: str = ""
    reason: str = ""


class FailureReport:
    """Of one run of a handler. Times are in seconds, of any clock that does not go back."""

    def __init__(self, topic: str, subscription: str) -> None:
        self._whose = f"{topic}: the handler of {subscription}"
        self._seen = SeenErrors()
        #: not in the log yet; {the kind, None: those that are too many to be remembered; whether a dead letter follows}
        self._repeated: dict[tuple[Kind | None, bool], _Repetitions] = {}

    def failed(self, message: Message, error: BaseException, delay_s: float | None, now_s: float) -> bool:
        """delay_s: after which the message comes again; None: it becomes a dead letter.

        Returns whether this is the first one that is counted: the caller calls `count` in COUNTED_EVERY_S.
        """
        line = (
            f"{self._whose} failed at message {message.index} ({message.message_id}, delivery "
            f"{message.delivery_count}), which "
            f"{'becomes a dead letter' if delay_s is None else f'comes again after {delay_s:g} s'}"
        )
        kind = kind_of(error)
        if self._seen.is_new(kind, now_s):
            logger.error("%s", line, exc_info=error)
            return False
        is_first = not self._repeated
        key = (kind if kind in self._seen else None, delay_s is None)
        repetitions = self._repeated.setdefault(key, _Repetitions(now_s))
        repetitions.count += 1
        repetitions.line, repetitions.reason = line, reason_of(error)
        return is_first

    def count(self, now_s: float) -> None:
        """Log what has come since the last time: a line for each kind of error."""
        repeated, self._repeated = self._repeated, {}
        for each in repeated.values():
            others = each.count - 1
            more = f" (and {others:,} more like it in {now_s - each.since_s:.1f} s)" if others else ""
            logger.error("%s: %s%s", each.line, each.reason, more)
