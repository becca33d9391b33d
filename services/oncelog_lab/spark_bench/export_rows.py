"""Exports of a whole topic on two cores, against Spark's own copy of the same rows from Parquet to Parquet.

An export also reads every file back before it commits, and it writes a column more, the date. Both run in a session
that has run them before: the first export of a session takes several times as long, because Java compiles.
"""

import shutil
import uuid
from pathlib import Path

from oncelog_lab.bench.figures import BenchRow, median, rounded
from oncelog_lab.bench.running import Tell
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.alternation import SparkSample, alternate, rate_row
from oncelog_lab.spark_bench.corpus import RowFiles
from oncelog_lab.spark_bench.formats import file_sink, file_source
from oncelog_lab.spark_bench.sessions import BenchSession
from oncelog_lab.spark_bench.settings import SparkSettings

EXPORT, COPY = "export, 2 partitions", "Parquet to Parquet"
PHASES = ("planning", "writing", "reading_back", "committing")


async def export_rows(
    cluster: LabCluster,
    session: BenchSession,
    settings: SparkSettings,
    topic: str,
    files: RowFiles,
    directory: Path,
    tell: Tell,
) -> list[BenchRow]:
    """topic: with two partitions and settings.rows messages; files: the same rows. Raises LabFailed."""
    phases: list[dict[str, float]] = []

    async def export() -> SparkSample:
        own = directory / f"export-{uuid.uuid4().hex}"
        answer = await session.request("export", url=cluster.url, topic=topic, directory=str(own))
        shutil.rmtree(own)
        if answer["rows"] != settings.rows:
            raise LabFailed(f"an export wrote {answer['rows']} of {settings.rows} rows")
        phases.append(answer["phases"])
        return SparkSample(settings.rows / answer["seconds"], answer["busy_cores"])

    async def copy() -> SparkSample:
        written = file_sink("parquet", str(directory / "copied.parquet"))
        return await session.rate(
            settings.rows,
            "copy",
            source=file_source("parquet", files.parquet),
            sink_format=written["format"],
            path=written["path"],
            columns=[],
        )

    found = await alternate({COPY: copy, EXPORT: export}, runs=settings.runs, tell=tell, what="export")
    counted = phases[-settings.runs :]
    return [
        rate_row(COPY, found[COPY], row_bytes=settings.message_bytes),
        rate_row(EXPORT, found[EXPORT], found[COPY], of="Parquet", row_bytes=settings.message_bytes),
        *(phase_row(name, [each[name] for each in counted]) for name in PHASES),
    ]


def phase_row(name: str, seconds: list[float]) -> BenchRow:
    """Seconds of one phase of the exports, without a ratio."""
    detail: dict[str, object] = {"runs": rounded(seconds)}
    return BenchRow(f"export, {name.replace('_', ' ')}", median(seconds), "s", None, None, detail)
