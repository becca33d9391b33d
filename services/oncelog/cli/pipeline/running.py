"""How a job runs: what it needs is there, a session for as long as it takes, its errors explained, Ctrl-C obeyed.

    raise typer.Exit(run_job("oncelog audit", master, conf, lambda spark: audit(spark, …)))

PySpark is imported here when a command runs, never before: --help takes no seconds, and works without it.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from oncelog.cli.extras import check_installed
from oncelog.cli.failures import Exit, explain
from oncelog.cli.pipeline.options import spark_options
from oncelog.core.errors import InvalidArgument, OncelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(
    name: str,
    master: str | None,
    conf: Iterable[str] | None,
    work: "Callable[[SparkSession], Exit]",
    check: Callable[[], object] | None = None,
) -> Exit:
    """Do `work` in a session named `name`; returns the code to exit with. Errors are explained on standard error.

    check: raises what is wrong with the command's own options, before the seconds that a session takes.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        choice = spark_options(master, conf)
        check_installed("pipeline")
        if check is not None:
            check()
        # gRPC reports every connection that ends, and every process that Spark starts beside it.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from oncelog.pipeline.session import job_session, under_spark_submit

        if under_spark_submit() and (choice.master or choice.settings):
            raise InvalidArgument("under spark-submit --master and --conf are its own: give them before the file")
        with _ended_by_sigterm(), job_session(name, master=choice.master, settings=choice.settings) as session:
            return work(session)
    except KeyboardInterrupt:
        errors.print("interrupted", markup=False)
        return Exit.INTERRUPTED
    except OncelogError as error:
        return explain(error, errors)
    except Exception as error:  # noqa: BLE001  # Spark and its gateway have no common error; what is none of them is a bug
        return explain(_of_spark(error), errors)


def _of_spark(error: Exception) -> Exception:
    """The error of ours that a task ended with; else the error itself."""
    if find_spec("pyspark") is None:
        return error
    from oncelog.pipeline.session import failure_of

    return failure_of(error) or error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
