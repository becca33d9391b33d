"""The top-level commands. Each is imported when it runs, so that --help and shell completion are fast."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from oncelog.cli.extras import EFFECTS, EFFECTS_SQL, LAB, SPARK
from oncelog.cli.failures import EXIT_CODES
from oncelog.cli.lazy_commands import LazyCommand, lazy_group
from oncelog.runtime.variables import warn_of_unknown

_HELP = f"""Oncelog: a replicated log in which every message takes effect once.

To start, run a cluster on this machine with `oncelog standalone`. Then, in another terminal:

    oncelog produce greetings --from-file FILE --producer-name importer

    oncelog read greetings --from earliest

    oncelog consume greetings --subscription mine --from earliest --limit 3

Set the address of another cluster with --url or --admin-url, or ONCELOG_URL and ONCELOG_ADMIN_URL, or keep it under a
name with `oncelog context`. If an option gives an address, the addresses in
variables are ignored.

{EXIT_CODES}"""


def _of(module: str, name: str) -> Callable[[], Any]:
    """A function that imports the module and returns its attribute `name`."""
    return lambda: getattr(import_module(module), name)


COMMANDS = {
    "standalone": LazyCommand(
        "Run a whole cluster on this machine.",
        _of("oncelog.cli.standalone.command", "standalone"),
        extras=("services", "embedded"),
    ),
    "produce": LazyCommand(
        "Publish the lines of a file or of standard input.",
        _of("oncelog.cli.produce.command", "produce"),
    ),
    "read": LazyCommand(
        "Print the messages of a topic.",
        _of("oncelog.cli.read.command", "read"),
    ),
    "consume": LazyCommand(
        "Print the messages of a subscription, and acknowledge them.",
        _of("oncelog.cli.consume.command", "consume"),
    ),
    "lag": LazyCommand(
        "Show how far subscriptions are behind.",
        _of("oncelog.cli.live.lag", "app"),
    ),
    "top": LazyCommand(
        "Show the busiest topics, subscriptions and producers, live.",
        _of("oncelog.cli.live.top", "app"),
    ),
    "mirror": LazyCommand(
        "Copy topics into another cluster.",
        _of("oncelog_effects.cli.mirror.app", "app"),
        extras=(EFFECTS,),
    ),
    "check": LazyCommand(
        "Check a cluster: publish one message twice, read it back once.",
        _of("oncelog.cli.check.command", "check"),
    ),
    "run": LazyCommand(
        "Run functions whose effects happen once.",
        _of("oncelog_effects.cli.run.command", "run"),
        extras=(EFFECTS,),
    ),
    "relay": LazyCommand(
        "Send the rows of an outbox table, each once.",
        _of("oncelog_effects.cli.relay.app", "app"),
        extras=(EFFECTS_SQL,),
    ),
    "demo": LazyCommand(
        "Publish a file while processes are killed, and verify it.",
        _of("oncelog_lab.demo.command", "demo"),
        extras=(LAB,),
    ),
    "context": LazyCommand(
        "Name clusters, and choose one for all commands.", _of("oncelog.cli.context.app", "context")
    ),
    "help": LazyCommand(
        "Show the help of a command, or explain connection options.",
        _of("oncelog.cli.compact_help", "show_help"),
    ),
    "admin": LazyCommand("Administer topics, namespaces, rights and processes.", _of("oncelog.cli.admin.app", "admin")),
    "effects": LazyCommand(
        "Show effects in databases, redo them, move them.",
        _of("oncelog_effects.cli.effects.app", "effects"),
        extras=(EFFECTS_SQL,),
    ),
    "storage": LazyCommand(
        "Inspect the directory of a stopped storage node.",
        _of("oncelog.cli.storage.app", "storage"),
    ),
    "bench": LazyCommand(
        "Measure this machine and cluster, as ratios to their limits.",
        _of("oncelog_lab.bench.commands", "app"),
        extras=(LAB,),
    ),
    "chaos": LazyCommand(
        "Inject faults into a cluster under load, and check the log.",
        _of("oncelog_lab.chaos.commands", "app"),
        extras=(LAB,),
    ),
    "pipeline": LazyCommand(
        "Run jobs over whole topics, on Spark.",
        _of("oncelog_spark.cli.app", "pipeline"),
        extras=(SPARK,),
    ),
}
# Plain text: what makes it prettier costs more than all else of --help.
app = typer.Typer(
    cls=lazy_group(COMMANDS), help=_HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"oncelog {version('oncelog')}")
        raise typer.Exit


#: Its processes refuse such a variable, and so does it.
_REFUSES = "standalone"


@app.callback()
def root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""
    if context.invoked_subcommand != _REFUSES:
        warn_of_unknown(os.environ)
