"""A test that hangs ends its run: the report names the test, and says where each thread and each task stands.

A pytest plugin, which tests/conftest.py registers. A test waits with a deadline (tests/cluster/until.py), so its limit
is far above what a test takes beside any load; only a wait without a deadline reaches it. The run then ends at once,
with an error: an exception in the main thread would wait for the very call that hangs. Services and servers that the
tests have started end with their parent.
"""

import asyncio
import faulthandler
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.tidy.conduct.task_story import running_loops, story_of

#: Of one test with the fixtures that it is the first to use. `@pytest.mark.limit_s(1800)` gives a test another one.
LIMIT_S = 600.0
#: After which the run ends even where no thread of Python can run, because a call holds the interpreter's lock.
_GRACE_S = 30.0
_MARKER = "limit_s(seconds): ends the run when the test takes longer (tests/tidy/conduct/hang_watch.py)"


#: How often the watching thread looks, and how exactly the time is kept after which the grace ends: a thread for each
#: test would cost half a millisecond.
_LOOK_S, _ARMED_S = 1.0, 10.0


class _Running(NamedTuple):
    test: str
    limit_s: float
    ends_at_s: float


class HangWatch:
    """descriptor: of standard error as it was before pytest captured it; kept open."""

    def __init__(self, descriptor: int) -> None:
        self._errors = os.fdopen(descriptor, "w")
        self._running: _Running | None = None
        self._over = threading.Event()
        #: (when faulthandler was asked to end the run, the limit of the test)
        self._armed = (-math.inf, 0.0)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", _MARKER)
        threading.Thread(target=self._watch, name="hang watch", daemon=True).start()

    def pytest_unconfigure(self) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()
        self._errors.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        marker = item.get_closest_marker("limit_s")
        limit_s = LIMIT_S if marker is None else float(marker.args[0])
        now_s = time.monotonic()
        if now_s - self._armed[0] > _ARMED_S or self._armed[1] != limit_s:
            self._armed = now_s, limit_s
            faulthandler.dump_traceback_later(limit_s + _GRACE_S, file=self._errors, exit=True)
        self._running = _Running(item.nodeid, limit_s, now_s + limit_s)
        try:
            return (yield)
        finally:
            self._running = None

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            running = self._running
            if running is not None and time.monotonic() > running.ends_at_s:
                self._end_run(running.test, running.limit_s)

    def _end_run(self, test: str, limit_s: float) -> None:
        self._say(f"\n{test} has not ended within {limit_s:g} s, so this run ends here. Where its threads stand:")
        faulthandler.dump_traceback(file=self._errors, all_threads=True)
        for loop in running_loops():
            self._say(f"Where the tasks of {loop!r} stand:")
            for task in asyncio.all_tasks(loop):
                self._say(story_of(task))
        os._exit(pytest.ExitCode.TESTS_FAILED)

    def _say(self, line: str) -> None:
        print(line, file=self._errors, flush=True)
