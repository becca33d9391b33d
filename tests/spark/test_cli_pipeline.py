"""The group `oncelog pipeline`: it explains itself without Spark, and refuses wrong options before anything starts."""

import pytest
from py4j.protocol import Py4JError
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.core.errors import DeadlineExceeded, Fatal, InvalidArgument
from oncelog.runtime.settings import unknown_variables
from oncelog_spark.cli.options import spark_options
from oncelog_spark.export.options import ExportOptions
from oncelog_spark.options import options_in
from oncelog_spark.session import failure_of, under_spark_submit


@pytest.mark.parametrize("conf", ["spark.x", "memory=4g", "=4g"])
def test_a_setting_that_is_not_sparks_is_refused(conf: str) -> None:
    """With the form that it should have."""
    with pytest.raises(InvalidArgument, match=r"--conf must be spark\.KEY=VALUE"):
        spark_options(None, [conf])
    assert spark_options("local[2]", ["spark.x=a=b"]).settings == {"spark.x": "a=b"}


def test_master_and_conf_are_refused_under_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that is set in two places would be silently ignored in one of them."""
    assert not under_spark_submit()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    answer = CliRunner().invoke(app, ["pipeline", "audit", "flights", "--master", "local[1]"])
    assert answer.exit_code == 1
    assert "under spark-submit set --master and --conf" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pattern", "(", "--url", "oncelog://127.0.0.1:1"], "is not a regular expression"),
        ([], "name topics, or set --pattern"),
        (["flights", "--picture", "no/such/place.svg"], "the directory does not exist"),
        (["a//b"], "topic"),
    ],
)
def test_wrong_options_of_an_audit_are_refused_before_spark_starts(arguments: list[str], said: str) -> None:
    """A session takes seconds, and reading a topic takes longer."""
    answer = CliRunner().invoke(app, ["pipeline", "audit", *arguments])
    assert answer.exit_code == 1
    assert said in answer.stderr


def test_a_failure_of_a_task_keeps_its_code() -> None:
    """Spark reports it as text, between traces of two languages; it must stay clear whether a retry makes sense."""
    trace = "Job aborted: \n oncelog.core.errors.DeadlineExceeded: no storage node answered in time\n\tat org.apache"
    failure = failure_of(Py4JError(trace))
    assert isinstance(failure, DeadlineExceeded)
    assert failure.message == "no storage node answered in time"
    assert isinstance(failure_of(Py4JError("Java says\nno")), Fatal)
    assert failure_of(KeyError("a bug")) is None


def test_variables_of_jobs_are_known() -> None:
    """No program warns of them."""
    read = {option.variable for option in options_in(ExportOptions) if option.variable}
    assert read
    assert unknown_variables(dict.fromkeys(read, "")) == {}
