"""Options that all jobs share besides those of `cli.options`: where Spark runs, and which topics.

Under spark-submit (`cli/pipeline/__main__.py`) Spark's own options come from there, and these are refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from oncelog.core.errors import InvalidArgument

MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Spark's master; by default local[*], all processors of this machine."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, as spark.driver.memory=4g; any number."),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]…", help="Names, or tenant/namespace/name; of a topic with parts, all of them."),
]
PatternOption = Annotated[
    str | None,
    typer.Option("--pattern", help="Regular expression for whole names: of public/default, or tenant/namespace/EXPR."),
]


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """master None: as spark-submit says, else local[*]. settings: {key: value}."""

    master: str | None
    settings: dict[str, str]


def spark_choice(master: str | None, conf: Iterable[str] | None) -> SparkChoice:
    """Raises InvalidArgument on a setting that is none."""
    settings: dict[str, str] = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise InvalidArgument(f"--conf is spark.KEY=VALUE, not {one[:80]!r}", field="conf")
        settings[key.strip()] = value.strip()
    if master is not None and not master.strip():
        raise InvalidArgument("--master is empty", field="master")
    return SparkChoice(master, settings)
