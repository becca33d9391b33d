"""The commands of `oncelog effects`. docs/effects.md has a section about them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.confirmation import YesOption
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.subscriptions import PLACE_HELP, seek_place
from oncelog.cli.failures import EXIT_CODES, offline
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import InvalidArgument, NotFound
from oncelog_effects.cli.mirror.options import Target, takes_target

if TYPE_CHECKING:
    from oncelog_effects.sql_admin import SqlAdmin

_HELP = f"""Show effects in databases (PostgreSQL, SQLite), redo them, move them.

A subscription whose messages take effect in a database is bound to it: the log knows the id of the store, the store
knows its position. `status` shows both sides:

    oncelog effects status --database sqlite:///shop.db

If a program ends with an error, its message names the command to use. Commands that lose something say what, and ask
first; --yes confirms in advance. Stop the programs first: a command refuses while they are connected.

{EXIT_CODES}"""
_EMPTY_FILE = "; a new database begins as an empty file: create it, and run this command again"
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="ONCELOG_DATABASE",
        metavar="URL",
        help="The database: postgresql+psycopg://USER@HOST/NAME, or sqlite:///PATH. Keep a password out of the process "
        "list: set ONCELOG_DATABASE instead.",
    ),
]
RedisOption = Annotated[
    str,
    typer.Option(
        "--redis",
        envvar="ONCELOG_EFFECTS_REDIS",
        metavar="URL",
        help="The Redis: redis://HOST:PORT/DATABASE. Keep a password out of the process list: set "
        "ONCELOG_EFFECTS_REDIS instead.",
    ),
]
SchemaOption = Annotated[str | None, typer.Option("--schema", help="Schema of the tables. Default: the database's.")]
PrefixOption = Annotated[str, typer.Option("--prefix", help="Prefix of the tables' names, as in SqlEffects.")]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic, or one of its partitions: NAME or NAME-partition-N.")
]
SubscriptionArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]
TopicOption = Annotated[str | None, typer.Argument(metavar="[TOPIC", help="Look at this topic only.")]
OfSubscriptionOption = Annotated[str | None, typer.Argument(metavar="SUBSCRIPTION]", help="And this subscription.")]
DialectOption = Annotated[str, typer.Option("--dialect", help="postgresql or sqlite.")]

effects = typer.Typer(help=_HELP, no_args_is_help=True)


@contextmanager
def _opened(database: str, schema: str | None, prefix: str, *, missing: str = "") -> "Iterator[SqlAdmin]":
    """missing: what helps if there is no such file. Raises InvalidArgument, NotFound."""
    from oncelog_effects.sql_admin import SqlAdmin

    try:
        admin = SqlAdmin(database, schema=schema, prefix=prefix)
    except NotFound as error:
        raise NotFound(f"{error.message}{missing}") from error
    try:
        yield admin
    finally:
        admin.close()


@admin_command(effects, "status")
def show_status(
    api: AdminApi,
    topic: TopicOption = None,
    subscription: OfSubscriptionOption = None,
    *,
    database: DatabaseOption,
    schema: SchemaOption = None,
    prefix: PrefixOption = "oncelog",
    store_only: Annotated[bool, typer.Option("--offline", help="Show what the store has; ask no cluster.")] = False,
) -> Report:
    """Show what the store and the log record about the same effects. Changes nothing.

    position: below it every message has its effect. lag: messages behind it. lost: acknowledged messages whose effects
    the store no longer has; a running program gets them again. state: ok, or what is wrong. The exit code is 1 if a
    program would end with an error. After a kill `oncelog lag` may show more until the program starts again and
    acknowledges the messages that have their effects.

    Without TOPIC and SUBSCRIPTION it compares only subscriptions with a row in this database: it finds neither a row
    that was deleted, nor a subscription that is bound to another database. With them it finds both. A redo that no
    program has begun yet has the state redo.
    """
    from oncelog_effects.cli.effects.status import status, store_status

    if (topic is None) != (subscription is None):
        raise InvalidArgument("give a topic and a subscription, or none of them", field="subscription")
    with _opened(database, schema, prefix) as admin:
        if store_only:
            return store_status(admin.view())
        wanted = (topic, subscription) if topic is not None and subscription is not None else None
        report, trouble = status(api, admin, wanted)
    if trouble:
        raise NegativeAnswer(report)
    return report


@admin_command(effects, "redo")
def redo_effects(
    api: AdminApi,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[str | None, typer.Option("--from", help=f"Where to begin: {PLACE_HELP}")] = None,
    index: Annotated[int | None, typer.Option("--from-index", min=0, help="Begin with this message.")] = None,
    yes: YesOption = False,
) -> Answer:
    """Let messages take effect again, from a place on. Says what happens, and asks first.

    1. Stop the programs. 2. Empty your own tables, or delete the results of the messages from that place on. 3. Run
    this command. 4. Start the programs: they begin at the place. To keep the old result next to the new one, run the
    program with another subscription, another effect and other tables instead.
    """
    from oncelog_effects.cli.effects.changes import redo

    place = seek_place(to, index, option="from")
    return redo(api, topic, subscription, place, f"index {index}" if to is None else to, yes=yes)


@admin_command(effects, "adopt")
def adopt_position(
    api: AdminApi,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    *,
    database: DatabaseOption,
    schema: SchemaOption = None,
    prefix: PrefixOption = "oncelog",
    position: Annotated[
        int | None,
        typer.Option("--position", min=0, help="Messages below this index have their effect in the store, no others."),
    ] = None,
    yes: YesOption = False,
) -> Answer:
    """Declare what the store has, where it and the log contradict each other. Says what that means, and asks first.

    Without --position the store's own position counts (redo_lost). With --position your value counts: after the log was
    restored (store_ahead, store_diverged), the table was lost (store_missing), or the log has deleted messages that an
    old backup lacks (store_too_old). A position that is too low repeats effects, one that is too high leaves them out.
    """
    from oncelog_effects.cli.effects.changes import adopt

    with _opened(database, schema, prefix) as admin:
        return adopt(api, admin, topic, subscription, position, yes=yes)


@admin_command(effects, "rebind")
def rebind_store(
    api: AdminApi,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    *,
    database: DatabaseOption,
    schema: SchemaOption = None,
    prefix: PrefixOption = "oncelog",
    from_database: Annotated[
        str | None,
        typer.Option("--from-database", metavar="URL", help="Copy the positions from this database, the former one."),
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="The new database has no effects: all messages take effect in it.")
    ] = False,
    yes: YesOption = False,
) -> Answer:
    """Bind a subscription to another database. Says what that means, and asks first.

    Stop the programs, and copy your own tables first. The positions come with --from-database; or the new database has
    them, because all tables were copied; or it begins with --empty. A database that was moved as a whole, by a dump or
    a replica, keeps its store id, and needs no rebind.
    """
    from oncelog_effects.cli.effects.changes import rebind

    if from_database is not None and empty:
        raise InvalidArgument("--from-database and --empty exclude each other", field="empty")
    with _opened(database, schema, prefix, missing=_EMPTY_FILE) as new:
        if from_database is None:
            return rebind(api, new, topic, subscription, old=None, empty=empty, yes=yes)
        with _opened(from_database, schema, prefix) as old:
            return rebind(api, new, topic, subscription, old=old, empty=False, yes=yes)


@effects.command("translate")
@offline
@takes_target
def translate_positions(
    *,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    database: DatabaseOption,
    to: Target,
    schema: SchemaOption = None,
    prefix: PrefixOption = "oncelog",
    cluster: Annotated[
        str | None,
        typer.Option("--from", metavar="CLUSTER", help="Id of the source's cluster, if the store knows several."),
    ] = None,
    forced: Annotated[
        bool, typer.Option("--forced", help="Continue even if the store has effects of messages that are not copied.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Continue effects in the copy of a topic in another cluster, each once. Says where, and asks first.

    For a cutover of a mirror: stop the programs at the source, run this command, and start them at the target. The
    cluster of the source is not asked. The position comes from the copies in the target, which are all read.
    """
    from oncelog_effects.cli.effects.translating import translate

    with _opened(database, schema, prefix) as admin:
        told = translate(admin, to, topic, subscription, cluster, forced=forced, yes=yes)
        _show(output, {"store": admin.place, "translated": told}, told)


@effects.command("resolve")
@offline
def resolve_partial(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    *,
    redis: RedisOption,
    hash_tag: Annotated[str | None, typer.Option("--hash-tag", help="As in RedisEffects.")] = None,
    applied: Annotated[bool, typer.Option("--applied", help="The effect is complete now.")] = False,
    again: Annotated[bool, typer.Option("--again", help="The effect is undone now: apply it again.")] = False,
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Give the message up: it becomes a dead letter.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare the outcome of an effect in Redis that was applied in part. Says what that means, and asks first.

    Redis undoes nothing. If a command of an effect fails after others, the program ends with PartialEffect, which names
    the message, the command and its error, and nothing more is applied. Check the results of the earlier commands;
    complete or undo them; then run this command, and start the program.
    """
    from oncelog_effects.cli.effects.resolving import resolution_of, resolve
    from oncelog_effects.redis_store import RedisEffects

    resolution = resolution_of(applied=applied, again=again, dead_letter=dead_letter)
    store = RedisEffects.at(redis, hash_tag=hash_tag)
    line = resolve(store, topic, subscription, resolution, yes=yes)
    _show(output, {"store": store.place, "resolved": line}, line)


@effects.command("ddl")
@offline
def print_ddl(
    *,
    dialect: DialectOption,
    schema: SchemaOption = None,
    prefix: PrefixOption = "oncelog",
    from_version: Annotated[
        int, typer.Option("--from-version", min=0, help="Print what tables of this schema version lack.")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the statements that create the tables, for SqlEffects(create_tables=False).

    Programs then need no right to create tables: SELECT, INSERT and UPDATE are enough.
    """
    from oncelog_effects.sql_schema import DIALECTS, ddl
    from oncelog_effects.sql_tables import EffectsTables

    if dialect not in DIALECTS:
        raise InvalidArgument(f"{dialect} is not supported: use one of {', '.join(DIALECTS)}", field="dialect")
    statements = ddl(EffectsTables(schema=schema, prefix=prefix), dialect, from_version=from_version)
    _show(output, list(statements), "\n\n".join(f"{statement};" for statement in statements))


def _show(output: Output, answer: Answer, line: str) -> None:
    print(json.dumps(answer, indent=2) if output is Output.JSON else line)
