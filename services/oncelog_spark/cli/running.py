"""Runs a job: checks what it needs, opens a Spark session for it, explains its errors, ends it on Ctrl-C and SIGTERM.

    raise typer.Exit(run_job("oncelog audit", master, conf, lambda spark: audit(spark, …)))

PySpark is imported when a command runs, not before: --help is quick, and works without PySpark.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.extras import SPARK, check_installed
from oncelog.cli.failures import Exit, explain
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog_spark.cli.options import ConfOption, MasterOption, given, spark_options, takes_options
from oncelog_spark.cli.output import checked, print_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OptionsT = TypeVar("OptionsT")


def job_command(
    name: str,
    description: str,
    table: type,
    read: Callable[[Mapping[str, str], Mapping[str, str]], OptionsT],
    work: "Callable[[SparkSession, OptionsT], dict[str, object]]",
) -> Callable[..., None]:
    """A command that runs one job, and prints its result with the seconds that it took.

    table: the dataclass with the job's options. read: makes them of their texts and the environment.
    """

    @takes_connection
    @takes_options(table)
    def command(
        *,
        own: dict[str, str],
        connection: Connection,
        master: MasterOption = None,
        conf: ConfOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        options = checked(lambda: read(own | given(**connection.as_job_options()), connection.variables()))
        raise typer.Exit(run_job(name, master, conf, lambda spark: print_timed(lambda: work(spark, options), output)))

    command.__doc__ = description
    return command


def print_timed(work: Callable[[], dict[str, object]], output: Output) -> Exit:
    """Print a job's result with the seconds that it took."""
    began_s = time.monotonic()
    print_result(work() | {"seconds": round(time.monotonic() - began_s, 3)}, output)
    return Exit.OK


def run_job(
    name: str,
    master: str | None,
    conf: Iterable[str] | None,
    work: "Callable[[SparkSession], Exit]",
    check: Callable[[], object] | None = None,
) -> Exit:
    """Do `work` in a session named `name`. Returns the exit code; errors are explained on standard error.

    check: raises for wrong options of the command, before the session is started, which takes seconds.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        choice = spark_options(master, conf)
        check_installed(SPARK)
        if check is not None:
            check()
        # Otherwise gRPC logs every connection that ends, and every process that Spark forks.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from oncelog_spark.session import job_session, under_spark_submit

        if under_spark_submit() and (choice.master or choice.settings):
            raise InvalidArgument("under spark-submit set --master and --conf as its own options, before the file")
        with _ended_by_sigterm(), job_session(name, master=choice.master, settings=choice.settings) as session:
            return work(session)
    except KeyboardInterrupt:
        errors.print("interrupted", markup=False)
        return Exit.INTERRUPTED
    except OncelogError as error:
        return explain(error, errors)
    except Exception as error:  # noqa: BLE001  # Spark and its gateway have no common error; any other error is a bug
        return explain(_of_spark(error), errors)


def _of_spark(error: Exception) -> Exception:
    """The error of this package that a task ended with; otherwise the error itself."""
    if find_spec("pyspark") is None:
        return error
    from oncelog_spark.session import failure_of

    return failure_of(error) or error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM has the same effect as Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
