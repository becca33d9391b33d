"""One Spark session and one cluster for all tests of the pipeline: each takes seconds to start."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncelog_spark.session import new_session
from tests.cluster.cluster_fixture import Cluster

#: Two tasks at once, and no files or connections outside the test.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # Nothing here runs for so long that the second compiler pays.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Starting a worker takes seconds on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Failed tasks are retried, as on a real cluster."""
    own = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that this one does not choose
        session = new_session("oncelog tests", master="local[2,3]", settings=SETTINGS | own)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ledgers roll after a few entries, so that a topic soon has closed ones."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with Cluster.running(directory, ledger_entries_max=16) as own:
        yield own
