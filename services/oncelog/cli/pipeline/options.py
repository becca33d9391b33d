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


def source_given(
    topics: list[str] | None,
    pattern: str | None,
    url: str,
    token_file: Path | None,
    tls_ca_file: Path | None,
    allow_plaintext_token: bool,
) -> dict[str, str]:
    """These options as those of the format "oncelog". Raises InvalidArgument unless topics are named in one way."""
    if bool(topics) == bool(pattern):
        raise InvalidArgument("name topics, or give --pattern: one of both", field="topics")
    given = {"serviceUrl": url, "allowPlaintextToken": "true" if allow_plaintext_token else "false"}
    given |= {"topicsPattern": pattern} if pattern else {"topics": ",".join(topics or ())}
    files = {"tokenFile": token_file, "tlsCaFile": tls_ca_file}
    return given | {name: str(path.absolute()) for name, path in files.items() if path is not None}
