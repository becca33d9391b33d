"""`oncelog pipeline import`: publish the rows of files to a topic, each row once."""

from typing import TYPE_CHECKING

from oncelog.cli.failures import EXIT_CODES
from oncelog_spark.cli.output import print_progress
from oncelog_spark.cli.running import job_command
from oncelog_spark.file_import.options import ImportOptions, import_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog_spark.file_import.job import ImportResult

_HELP = f"""Publish the rows of Parquet or CSV files, each once, however often the command is run or killed.

    oncelog pipeline import /data/in --topic flights --name landing      # all *.parquet below /data/in

    oncelog pipeline import /data/in --topic flights --name landing --format csv --key id --value line

Run it again for new files: rows that are published already are skipped, by the name and the file's path below SOURCE.
SOURCE may be mounted elsewhere another time, but a file must keep its path and its content: a changed file is an error
that names it. The rows of a file are published in order, those of several files in parallel.

The value of a message is a JSON object of all columns, or the column --value as it is. --key, --event-time (a time, ISO
8601, or ms since 1970) and --property use further columns. A whole file is checked before its first row is published: a
row that cannot be a message is an error that names file and row, and nothing of this file is published.

`oncelog help json` has the fields of -o json.

{EXIT_CODES}"""


def _import(spark: "SparkSession", options: ImportOptions) -> dict[str, object]:
    from oncelog_spark.file_import.job import import_files as run

    return result_of(run(spark, options, print_progress))


import_files = job_command("oncelog import", _HELP, ImportOptions, import_options, _import)


def result_of(found: "ImportResult") -> dict[str, object]:
    """As documented in the help."""
    return {
        "topic": found.topic,
        "found": found.found,
        "done": found.done,
        "new": found.new,
        "resumed": found.resumed,
        "rows": found.rows,
        "bytes": found.size_bytes,
        "files": [{"path": path, "rows": rows} for path, rows in found.files],
    }
