"""The driver, a process of its own: `python -m tests.spark_proof.driver SPEC`. It runs one query over the stored
messages.

SPEC is the JSON of a `DriverSpec`. The exit code is 0 when the query has come to its end, 3 when it failed.
"""

import json
import sys
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions

from oncelog_spark.session import new_session
from tests.spark_proof.faulty_sink import FAULTS, InjectingDataSource, UnprotectedDataSource
from tests.spark_proof.flights import CANCELLED, PREFIX, SOURCE
from tests.spark_proof.plan import Job

#: Rows of an Arrow batch, and of a claim: several of each in every task, with different boundaries.
ARROW_ROWS, CLAIM_ROWS = 100, 150
FAILED = 3
#: Spark gives the Python process of its planning ten seconds to start, even on a busy machine; a query that failed for
#: this reason is started again, in the same session.
LATE = "worker failed to connect back"
STARTS_MAX = 20
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
}


@dataclass(frozen=True, slots=True)
class DriverSpec:
    """One start of one query. settings: additional ones of Spark. coalesce: partitions behind a shuffle; 0:
    unchanged."""

    url: str
    job: Job
    mode: str
    master: str
    target: str
    directory: str
    rows_per_batch: int
    protected: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    coalesce: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "DriverSpec":
        told = json.loads(text)
        return cls(**{**told, "job": Job(told["job"])})


def frame_of(session: SparkSession, spec: DriverSpec) -> DataFrame:
    """The job, with the same result as `flights.wanted`."""
    source = session.readStream.format("oncelog").options(
        serviceUrl=spec.url, topic=SOURCE, startingPosition="earliest", maxRowsPerBatch=spec.rows_per_batch
    )
    columns = functions.split(functions.col("value").cast("string"), ",")
    rows = source.load().withColumn("line", columns).where(f"line[4] <> '{CANCELLED}'")
    if spec.job is Job.DISTINCT:
        day = functions.expr("concat(line[2], '-', line[3])").alias("value")
        frame = rows.select(functions.col("key").cast("string").alias("key"), day).dropDuplicates(["key", "value"])
        return frame.coalesce(spec.coalesce) if spec.coalesce else frame
    text = functions.expr("concat(line[0], ' ', line[10], line[11], ' ', line[13], '-', line[14])").alias("value")
    copied = rows.select("key", text, "topic", "partition", "topic_id", "index")
    if spec.job is Job.COPY:
        return copied if spec.protected else copied.select("key", "value")
    return copied.repartition("key").select("key", "value")


def run(spec: DriverSpec) -> None:
    """Raises StreamingQueryException."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from other libraries
        own = {"spark.sql.warehouse.dir": f"{spec.directory}/warehouse"}
        session = new_session("oncelog proof", master=spec.master, settings=_SETTINGS | own | spec.settings)
    session.sparkContext.setLogLevel("ERROR")
    for source in (InjectingDataSource, UnprotectedDataSource):
        session.dataSource.register(source)
    given: dict[str, Any] = {"serviceUrl": spec.url, "topic": spec.target, FAULTS: f"{spec.directory}/faults"}
    if spec.protected:
        given |= {"producerPrefix": PREFIX, "mode": spec.mode, "rowsPerClaim": CLAIM_ROWS}
    writer = frame_of(session, spec).writeStream.format("faulty" if spec.protected else "unprotected")
    checkpoint = f"{spec.directory}/checkpoint"
    writer = writer.options(**given).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    try:
        for again in range(STARTS_MAX, 0, -1):
            try:
                writer.start().awaitTermination()
                return
            except StreamingQueryException as error:
                if again == 1 or LATE not in str(error):
                    raise
    finally:
        session.stop()


if __name__ == "__main__":
    try:
        run(DriverSpec.from_json(sys.argv[1]))
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr)
        sys.exit(FAILED)
