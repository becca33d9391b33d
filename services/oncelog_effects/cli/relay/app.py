"""The commands of `oncelog relay`. Without the name of one, it is `run`."""

import json
import re
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.default_command import RunByDefault
from oncelog.cli.failures import EXIT_CODES, Exit, offline
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.running import Interrupt, run_command
from oncelog.core.errors import InvalidArgument

if TYPE_CHECKING:
    from oncelog_effects.outbox.database import OutboxDatabase

_HELP = f"""Send the rows of an outbox table to the log, each once.

A program inserts a row into the table oncelog_outbox, in the transaction of its own changes. The relay sends committed
rows in order, and deletes those that are stored. Run two relays: the second one takes over when the first one ends.

    oncelog relay run --database postgresql+psycopg://localhost/shop

    oncelog relay status --database postgresql+psycopg://localhost/shop

{EXIT_CODES}"""
_RUN_HELP = f"""Send the rows of an outbox table to the log, until Ctrl-C or SIGTERM.

Rows that can never be sent get a reason in their column `refused`, and nothing waits for them. If the database
contradicts the log, for example after a restored backup, the relay ends with an error that names the command to use.

{EXIT_CODES}"""
_RESUME_HELP = f"""Resume after an error that ended the relay. Stop all relays of the outbox first.

--after-restore   the database was restored from a backup. Rows that the log has count as stored, all others are sent.
                  Prints the event ids that the log has and the database has lost.

--log-lost TOPIC   the log has lost messages. Rows that --keep has kept are sent again.

--other-topic TOPIC   the topic was deleted and created again. Rows that are left go to the new one.

--other-cluster   the same for all topics: the relay now sends to another cluster.

Write a TOPIC as the error does, with the suffix of a partition.

{EXIT_CODES}"""
_LARGEST_POLL_MS = 60_000
_LEASE_MS_MIN, _LEASE_MS_MAX = 1_000, 3_600_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")


app = typer.Typer(cls=RunByDefault, help=_HELP, no_args_is_help=True, add_completion=False)
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database", envvar="ONCELOG_RELAY_DATABASE",
        help="The database as a URL of SQLAlchemy, such as postgresql+psycopg://HOST/NAME or sqlite:////PATH. Of the "
        "application whose rows are sent; ONCELOG_DATABASE, of `oncelog effects`, is another one.",
    ),
]  # fmt: skip
TableOption = Annotated[str, typer.Option("--table", help="The table of rows; two others have its name as prefix.")]
SchemaOption = Annotated[str | None, typer.Option("--schema", help="The schema of the tables. Default: the user's.")]
KeepOption = Annotated[
    str,
    typer.Option("--keep", help="Keep stored rows for this time, such as 12h or 7d, for a log that loses messages."),
]
_TABLE = "oncelog_outbox"


class Dialect(StrEnum):
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class DeletedChoice(StrEnum):
    STORED = "stored"
    UNSENT = "unsent"


def _milliseconds(text: str, *, field: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{field}: {text!r} is not a duration: use one such as 50ms, 1s, 12h or 7d", field=field)
    return int(match[1]) * _UNITS_MS[match[2]]


def _poll_ms(text: str) -> tuple[int, int]:
    low, _, high = text.partition("..")
    first, last = _milliseconds(low, field="poll"), _milliseconds(high or low, field="poll")
    if not 1 <= first <= last <= _LARGEST_POLL_MS:
        raise InvalidArgument("poll: give 1ms to 1m, the shorter one first, such as 50ms..1s", field="poll")
    return first, last


def _lease_ms(text: str) -> int:
    lease_ms = _milliseconds(text, field="lease")
    if not _LEASE_MS_MIN <= lease_ms <= _LEASE_MS_MAX:
        raise InvalidArgument("lease: give 1s to 1h", field="lease")
    return lease_ms


def _database(
    url: str, table: str, schema: str | None, *, keep: str = "0s", lease: str = "15s", create: bool = True
) -> "OutboxDatabase":
    from oncelog_effects.outbox.database import OutboxDatabase
    from oncelog_effects.outbox.tables import OutboxTables

    return OutboxDatabase(
        url, OutboxTables(schema=schema, name=table), create_tables=create, keep_ms=_milliseconds(keep, field="keep"),
        lease_ms=_lease_ms(lease),
    )  # fmt: skip


@takes_connection
def run(
    database: DatabaseOption,
    table: TableOption = _TABLE,
    schema: SchemaOption = None,
    keep: KeepOption = "0s",
    poll: Annotated[
        str, typer.Option("--poll", help="How often an idle relay looks for rows: A..B, or one duration.")
    ] = "50ms..1s",
    lease: Annotated[
        str, typer.Option("--lease", help="A relay that is silent for this time is replaced by another one.")
    ] = "15s",
    create_tables: Annotated[
        bool, typer.Option("--create-tables/--no-create-tables", help="Create tables that are missing.")
    ] = True,
    health_host: Annotated[str, typer.Option("--health-host", help="Address of the health port.")] = "127.0.0.1",
    health_port: Annotated[
        int | None, typer.Option("--health-port", help="Port of /livez, /readyz, /metrics and /status; 0: a free one.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    errors = Console(stderr=True, highlight=False)

    async def main(_: Interrupt) -> Exit:
        from oncelog.runtime.logs import set_up_logs
        from oncelog_effects.core.outbox.relay import OutboxRelay
        from oncelog_effects.outbox.log import log_of
        from oncelog_effects.outbox.monitoring import monitored
        from oncelog_effects.outbox.relay import RelayProcess

        first_ms, last_ms = _poll_ms(poll)
        opened = _database(database, table, schema, keep=keep, lease=lease, create=create_tables)
        set_up_logs()
        async with await connection.connect(30.0) as client:
            core = OutboxRelay(poll_ms_min=first_ms, poll_ms_max=last_ms, keeps=opened.keeps, lease_ms=_lease_ms(lease))
            process = RelayProcess(log_of(client), opened, core)
            async with monitored(process, health_host, health_port):
                await process.run()
        return Exit.OK

    raise typer.Exit(run_command(main, errors))


@takes_connection
def resume(
    database: DatabaseOption,
    table: TableOption = _TABLE,
    schema: SchemaOption = None,
    after_restore: Annotated[bool, typer.Option("--after-restore", help="The database was restored.")] = False,
    log_lost: Annotated[str, typer.Option("--log-lost", metavar="TOPIC", help="The log has lost messages.")] = "",
    other_topic: Annotated[
        str, typer.Option("--other-topic", metavar="TOPIC", help="The topic was created again.")
    ] = "",
    other_cluster: Annotated[bool, typer.Option("--other-cluster", help="The cluster is another one.")] = False,
    deleted: Annotated[
        DeletedChoice | None,
        typer.Option("--deleted", help="With --after-restore: rows whose messages retention has deleted."),
    ] = None,
    keep: KeepOption = "0s",
    *,
    connection: Connection,
) -> None:
    if sum(map(bool, (after_restore, log_lost, other_topic, other_cluster))) != 1:
        raise typer.BadParameter("give one of --after-restore, --log-lost, --other-topic and --other-cluster")
    errors = Console(stderr=True, highlight=False)

    async def main(_: Interrupt) -> Exit:
        from oncelog.core.names import parse_topic
        from oncelog_effects.core.outbox.resume import Happened
        from oncelog_effects.outbox.log import log_of
        from oncelog_effects.outbox.resuming import resume as resume_outbox

        happened = Happened.RESTORED if after_restore else Happened.LOG_LOST if log_lost else Happened.OTHER_TOPIC
        topic = log_lost or other_topic
        opened = _database(database, table, schema, keep=keep, create=False)
        async with await connection.connect(30.0) as client:
            await resume_outbox(
                log_of(client), opened, happened, str(parse_topic(topic)) if topic else "",
                deleted=None if deleted is None else deleted.value, tell=print,
            )  # fmt: skip
        return Exit.OK

    raise typer.Exit(run_command(main, errors))


@offline
def status(
    database: DatabaseOption,
    table: TableOption = _TABLE,
    schema: SchemaOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show waiting rows, refused rows, and the streams. Needs no cluster."""
    import asyncio

    from oncelog_effects.outbox.status import OutboxStatus, read_status

    found: OutboxStatus = asyncio.run(read_status(_database(database, table, schema, create=False)))
    if output is Output.JSON:
        print(json.dumps(asdict(found)))
        return
    holder = "a relay is active" if found.active else "no relay is active"
    print(f"{found.place}, table {found.table}: {holder}")
    print(f"waiting: {found.waiting}, the oldest for {found.oldest_s:.1f} s; refused: {found.refused}")
    for topic, rows in found.waiting_topics.items():
        print(f"waiting: {rows} for {topic}")
    if found.waiting_topics:
        where = "its log, and /status of its --health-port" if found.active else "the log of the relay that ran last"
        print(f"why a topic is held back: see {where}")
    for stream in found.streams:
        print(f"{stream['topic']}: next number {stream['next_number']}, stored up to {stream['confirmed']}")
    for row in found.refused_rows:
        print(f"refused: row {row['row']}: {row['reason']}")


@offline
def ddl(
    dialect: Annotated[Dialect, typer.Option("--dialect", help="Of the database.")] = Dialect.POSTGRESQL,
    table: TableOption = _TABLE,
    schema: SchemaOption = None,
) -> None:
    """Print the statements that create the tables. Needs no database."""
    from oncelog_effects.outbox.tables import OutboxTables, ddl_of

    print(ddl_of(OutboxTables(schema=schema, name=table), dialect.value))


run.__doc__, resume.__doc__ = _RUN_HELP, _RESUME_HELP
for _command in (run, resume, status, ddl):
    app.command(_command.__name__)(_command)
