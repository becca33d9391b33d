"""A Spark session that knows the format "oncelog".

PYSPARK_PYTHON must name this very interpreter: by default Spark starts whatever `python3` is, which may lack this
package, and then says only that a worker failed to connect back.

Under spark-submit the Java process is there already, with the master and the settings that were given to it, and so
may be PYSPARK_PYTHON: nothing of that is overridden.
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
from oncelog.pipeline.data_source import OncelogDataSource

JAVA_VERSION_MIN = 17
_RAISED = re.compile(r"oncelog\.core\.errors\.(\w+): (.+)")
_JAVA_TIMEOUT_S = 30
#: Where spark-submit tells the Python that it starts how to reach it.
_GATEWAY = "PYSPARK_GATEWAY_PORT"
#: Of a job on this machine: nothing listens beyond it, and nothing is there to be looked at.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}


def new_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session named `name`, or the one that this process has. master None: as spark-submit says, else local[*].

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
    """Whether spark-submit has started this process."""
    return _GATEWAY in os.environ


@contextmanager
def job_session(name: str, *, master: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. master None: as spark-submit says, else local[*].

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
    """Raises InvalidArgument, with what to do."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise InvalidArgument(_need(f"there is none at {java}" if java else "there is none here"), field="JAVA_HOME")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False)
    version = java_version(answer.stderr)
    if version is None or version < JAVA_VERSION_MIN:
        said = (answer.stderr.strip() or "nothing").splitlines()[0][:200]
        raise InvalidArgument(_need(f"{java} says: {said}"), field="JAVA_HOME")


def java_version(said: str) -> int | None:
    """The major version that `java -version` told: 17 of `openjdk version "17.0.15"`, 8 of "1.8.0_292"."""
    _, _, rest = said.partition('version "')
    parts = rest.partition('"')[0].replace("_", ".").replace("-", ".").split(".")
    if parts[0] == "1" and len(parts) > 1:
        parts = parts[1:]
    return int(parts[0]) if parts[0].isdigit() else None


def _need(found: str) -> str:
    return f"Spark needs a Java of version {JAVA_VERSION_MIN} or later, in JAVA_HOME or on the PATH: {found}"


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
