"""Options and arguments of the commands, and how they open a database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.core.errors import NotFound

if TYPE_CHECKING:
    from oncelog_effects.sql_admin import SqlAdmin

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


@contextmanager
def opened(database: str, schema: str | None, prefix: str, *, missing: str = "") -> "Iterator[SqlAdmin]":
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
