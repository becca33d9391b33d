"""Options that all jobs share besides those of `cli.options`: where Spark runs, and which topics.

Under spark-submit (`cli/pipeline/__main__.py`) Spark's own options come from there, and these are refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
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
class SparkOptions:
    """master None: as spark-submit says, else local[*]. settings: {key: value}."""

    master: str | None
    settings: dict[str, str]


def spark_options(master: str | None, conf: Iterable[str] | None) -> SparkOptions:
    """Raises InvalidArgument on a setting that is none."""
    settings: dict[str, str] = {}
    for one in conf or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise InvalidArgument(f"--conf is spark.KEY=VALUE, not {one[:80]!r}", field="conf")
        settings[key.strip()] = value.strip()
    if master is not None and not master.strip():
        raise InvalidArgument("--master is empty", field="master")
    return SparkOptions(master, settings)


def given(**options: str | int | Path | None) -> dict[str, str]:
    """Options as jobs take them, by their names, as texts. None and "": not given. Executors may have another working
    directory, so paths are whole ones."""
    return {name: _text(value) for name, value in options.items() if value not in (None, "")}


def _text(value: str | int | Path | None) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    return str(value).lower() if isinstance(value, bool) else str(value)


def connection_given(
    url: str, token_file: Path | None, tls_ca_file: Path | None, allow_plaintext_token: bool
) -> dict[str, str]:
    """How to reach the cluster, as options of jobs."""
    return given(serviceUrl=url, tokenFile=token_file, tlsCaFile=tls_ca_file, allowPlaintextToken=allow_plaintext_token)


def topics_given(topics: list[str] | None, pattern: str | None) -> dict[str, str]:
    """Which topics, as options of the format "oncelog". Raises InvalidArgument unless they are named in one way."""
    if bool(topics) == bool(pattern):
        raise InvalidArgument("name topics, or give --pattern: one of both", field="topics")
    return given(topicsPattern=pattern, topics=",".join(topics or ()))
