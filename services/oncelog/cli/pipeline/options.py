"""Options that jobs share, besides those of `cli.options`: Spark's master and settings, and topics.

Under spark-submit (`cli/pipeline/__main__.py`) --master and --conf are refused: spark-submit sets them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from oncelog.core.errors import InvalidArgument

MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Spark master [local[*], all processors of this machine]."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting, as spark.driver.memory=4g; may be repeated."),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]…", help="Topics, as NAME or TENANT/NAMESPACE/NAME, with all their partitions."),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        "--pattern", help="Regular expression for whole names in public/default, or TENANT/NAMESPACE/EXPRESSION."
    ),
]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """master None: that of spark-submit, else local[*]. settings: {key: value}."""

    master: str | None
    settings: dict[str, str]


def spark_options(master: str | None, conf: Iterable[str] | None) -> SparkOptions:
    """Raises InvalidArgument for a wrong setting."""
    settings: dict[str, str] = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise InvalidArgument(f"--conf must be spark.KEY=VALUE, not {one[:80]!r}", field="conf")
        settings[key.strip()] = value.strip()
    if master is not None and not master.strip():
        raise InvalidArgument("--master must not be empty", field="master")
    return SparkOptions(master, settings)


def given(**options: str | int | Path | bool | None) -> dict[str, str]:
    """Options of a job, by name, as strings. None and "": not set. Paths are made absolute, because executors may have
    another working directory."""
    return {name: _text(value) for name, value in options.items() if value not in (None, "")}


def _text(value: str | int | Path | None) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    return str(value).lower() if isinstance(value, bool) else str(value)


def topics_given(topics: list[str] | None, pattern: str | None) -> dict[str, str]:
    """Topics, as options of the format "oncelog". Raises InvalidArgument unless exactly one of both is set."""
    if bool(topics) == bool(pattern):
        raise InvalidArgument("name topics, or set --pattern, but not both", field="topics")
    return given(topicsPattern=pattern, topics=",".join(topics or ()))
