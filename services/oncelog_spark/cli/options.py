"""Options that jobs share, besides those of `cli.options`: Spark's master and settings, and topics.

Under spark-submit (`cli/__main__.py`) --master and --conf are refused: spark-submit sets them.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from oncelog.cli.parameters import option_parameter, spread_parameter
from oncelog.core.errors import InvalidArgument
from oncelog_spark.options import Option, as_text, options_in, switch

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
    """Options of a job, by name, as strings. None and "": not set."""
    return {name: as_text(value) for name, value in options.items() if value not in (None, "")}


def takes_options(table: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """In the command's signature, its parameter `own` becomes the options of a job's dataclass. The command gets
    {name: text} of those that are set."""
    shown = {option.name: option for option in options_in(table) if option.flag is not None}

    def gather(values: dict[str, Any]) -> dict[str, str]:
        texts = {name: ",".join(value) if isinstance(value, list) else value for name, value in values.items()}
        return given(**{name: None if value is False else value for name, value in texts.items()})

    return lambda command: spread_parameter(command, "own", list(map(_parameter, shown.values())), gather)


def _parameter(option: Option) -> inspect.Parameter:
    flag, _, metavar = (option.flag or "").partition(" ")
    if not flag.startswith("-"):
        return option_parameter(option.name, Annotated[str, typer.Argument(metavar=flag, help=option.help)])
    variable = option.variable if option.variable_shown else None
    shown = typer.Option(flag, metavar=metavar or None, help=option.help, envvar=variable)
    if option.parse is switch:
        return option_parameter(option.name, Annotated[bool, shown], False)
    kind = list[str] if option.repeated else str
    if option.required is not None:
        return option_parameter(option.name, Annotated[kind, shown])
    return option_parameter(option.name, Annotated[kind | None, shown], None)


def topics_given(topics: list[str] | None, pattern: str | None) -> dict[str, str]:
    """Topics, as options of the format "oncelog". Raises InvalidArgument unless exactly one of both is set."""
    if bool(topics) == bool(pattern):
        raise InvalidArgument("name topics, or set --pattern, but not both", field="topics")
    return given(topicsPattern=pattern, topics=",".join(topics or ()))
