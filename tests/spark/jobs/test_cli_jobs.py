"""The commands export, import and compact: wrong options are refused before Spark starts, and the help documents all
fields of the output."""

import re

import pytest
from typer.testing import CliRunner

from oncelog.cli.json_fields import FIELDS
from oncelog.core.ids import TopicId
from oncelog_spark.cli import compact, export, import_files
from oncelog_spark.cli.app import pipeline
from oncelog_spark.compaction.job import CompactionResult
from oncelog_spark.export.clean import Leftover
from oncelog_spark.export.job import ExportResult
from oncelog_spark.export.manifest import DataFile, ExportManifest, PartitionRange
from oncelog_spark.export.reading import VerifiedExport
from oncelog_spark.file_import.job import ImportResult
from oncelog_spark.source.offsets import TopicState


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("export flights", "option directory is required"),
        ("export --to /data", "set one of the options topic, topics, topicsPattern"),
        ("export flights --to s3://data", "option directory must be a path, file:// or hdfs://, not s3://"),
        ("export flights --to /data --rows-per-file many", "option rowsPerFile must be 1 to 100000000"),
        ("export flights --to /data --verify", "--verify and --clean apply to the whole directory: leave out topics"),
        ("import /in --topic t --name n --format xml", "option format must be one of parquet, csv"),
        ("import /in --topic t --name n --delimiter ;", "option delimiter is for format=csv"),
        ("compact prices --to prices", "public/default/prices is the source of the compaction: name a new topic"),
        ("compact prices --to other --without-key keep", "option withoutKey must be one of error, drop, not 'keep'"),
        ("compact prices --to other --empty-value no", "option emptyValue must be one of delete, keep, not 'no'"),
    ],
)
def test_a_wrong_option_ends_the_command_before_spark_starts(words: str, message: str) -> None:
    """With exit code 1 and one sentence."""
    answer = CliRunner().invoke(pipeline, words.split())
    assert answer.exit_code == 1
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def names_told(command: str) -> set[str]:
    """What `oncelog help json` says of a command."""
    return words_of(FIELDS[f"pipeline {command}"])


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def names_of(told: object) -> set[str]:
    if isinstance(told, dict):
        return set(told) | {name for value in told.values() for name in names_of(value)}
    return {name for each in told for name in names_of(each)} if isinstance(told, list) else set()


PHASES = {"planning": 0.1, "writing": 2.0, "reading_back": 1.0, "committing": 0.1}


def test_the_help_lists_every_field_of_the_output() -> None:
    """Programs depend on them."""
    state = TopicState("t", TopicId("id"), 0, 5)
    manifest = ExportManifest(
        0, "run=000000-x", 0, (PartitionRange("t", TopicId("id"), 0, 5, 0),), (DataFile("f", "t", 1, 5, 0, 4, ""),)
    )
    exported = export.result_of(ExportResult(manifest, ("gone",), (Leftover("run=000000-y", 1, 2),), PHASES))
    assert names_of(exported) <= names_told("export")
    assert (exported["rows"], exported["bytes"]) == (5, 1)
    verified = export.verification_of(VerifiedExport(1, 2, 3, 4, {"t": 5}, ("bad",)))
    assert names_of(verified) <= names_told("export")
    assert verified["ok"] is False
    imported = import_files.result_of(ImportResult("t", 1, 0, 1, 0, 5, 9, (("a.csv", 5),)))
    assert names_of(imported) <= names_told("import")
    compacted = compact.result_of(CompactionResult("job", (state,), 3, False, 0), "other")
    assert names_of(compacted) <= words_of(compact.compact.__doc__ or "")
    assert (compacted["read"], compacted["kept"]) == (5, 3)
