"""Spark sessions with the format "oncelog", and the errors that their tasks end with.

PYSPARK_PYTHON must name this interpreter: by default Spark starts `python3`, which may lack this package, and then
reports only that a worker failed to connect back.

Under spark-submit the Java process already runs, with its own master and settings, and PYSPARK_PYTHON may be set:
nothing of this is overridden.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oncelog.core import errors
from oncelog.core.errors import Fatal, InvalidArgument, OncelogError
from oncelog_spark.data_source import OncelogDataSource

JAVA_VERSION_MIN = 17
_RAISED = re.compile(r"oncelog\.core\.errors\.(\w+): (.+)")
_JAVA_TIMEOUT_S = 30
#: The port of the Java process, which spark-submit sets for the Python that it starts.
_GATEWAY = "PYSPARK_GATEWAY_PORT"
#: For a job on this machine: Spark listens on loopback only, and has no web UI.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}


def new_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session named `name`, or the one that this process has. master None: that of spark-submit, else local[*].

    Raises InvalidArgument where there is no Java that Spark can use.
    """
    if under_spark_submit():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        check_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(OncelogDataSource)
    return session


def under_spark_submit() -> bool:
    """Whether spark-submit started this process."""
    return _GATEWAY in os.environ


@contextmanager
def job_session(name: str, *, master: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. master None: that of spark-submit, else local[*].

    Raises as `new_session`.
    """
    local = not under_spark_submit() and (master is None or master.startswith("local"))
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = new_session(name, master=master, settings=_LOCAL | dict(settings) if local else settings)
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def check_java() -> None:
    """Raises InvalidArgument where Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise InvalidArgument(_need(f"none found at {java}" if java else "none found"), field="JAVA_HOME")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False)
    version = java_version(answer.stderr)
    if version is None or version < JAVA_VERSION_MIN:
        output = (answer.stderr.strip() or "nothing").splitlines()[0][:200]
        raise InvalidArgument(_need(f"{java} -version prints: {output}"), field="JAVA_HOME")


def java_version(output: str) -> int | None:
    """The major version in the output of `java -version`: 17 of `openjdk version "17.0.15"`, 8 of "1.8.0_292"."""
    _, _, rest = output.partition('version "')
    parts = rest.partition('"')[0].replace("_", ".").replace("-", ".").split(".")
    if parts[0] == "1" and len(parts) > 1:
        parts = parts[1:]
    return int(parts[0]) if parts[0].isdigit() else None


def _need(found: str) -> str:
    return f"Spark needs Java {JAVA_VERSION_MIN} or later, in JAVA_HOME or on the PATH: {found}"


def failure_of(error: BaseException) -> OncelogError | None:
    """The error of this package that a Spark task ended with, taken from the text of Spark's error. Its class is kept,
    so callers can still tell retriable errors. None: the error is not from Spark."""
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
