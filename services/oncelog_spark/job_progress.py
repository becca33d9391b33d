"""Progress messages of Spark jobs. Each message covers the stages that run at that moment."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

Report = Callable[[str], None]
_PERIOD_S = 5.0


@contextmanager
def report_progress(context: "SparkContext", what: str, report: Report) -> Iterator[None]:
    """Report `what`, and every few seconds how many tasks of the running stages have ended."""
    report(what)
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, what, report, over), name="job-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(context: "SparkContext", what: str, report: Report, over: threading.Event) -> None:
    tracker, before = context.statusTracker(), ""
    while not over.wait(_PERIOD_S):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        now = ", ".join(f"{stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in known)
        if now and now != before:
            report(f"{what}: {now}")
        before = now
