"""The tables of an outbox: the rows of the application, and two that only the relay writes.

Rows can be inserted in any language: `INSERT INTO oncelog_outbox (topic, message_key, value) VALUES …`.

The outbox gets its id with its tables, not from its first relay: so a database that is restored to before that relay
is still known to the log (hazard restored-to-before-the-first-relay).
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    cast,
    event,
    func,
    insert,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import GenericFunction

from oncelog.core.errors import InvalidArgument
from oncelog_effects.table_creation import SharedMetaData

TABLE = "oncelog_outbox"
TABLE_CHARACTERS_MAX = 40
SCHEMA_VERSION = 1
#: A column of SQLite takes a value of any type. Tables of before lack this check, so the relay looks at each row, too.
_SQLITE_TYPES = (
    "typeof(event_id) = 'text'",
    "typeof(topic) = 'text'",
    "typeof(message_key) IN ('blob', 'text', 'null')",
    "typeof(value) IN ('blob', 'text')",
    "typeof(properties) IN ('text', 'blob', 'null')",
    "typeof(event_time_ms) IN ('integer', 'null')",
)
_ID = BigInteger().with_variant(Integer, "sqlite")


class new_event_id(GenericFunction[str]):  # noqa: N801  # a function of SQL
    """A random event id."""

    type = String()
    inherit_cache = True


class database_time_ms(GenericFunction[int]):  # noqa: N801
    """The database's clock, ms since 1970."""

    type = BigInteger()
    inherit_cache = True


class age_s(GenericFunction[float]):  # noqa: N801
    """How old a time is, by the database's clock, in seconds."""

    type = Float()
    inherit_cache = True


@compiles(age_s, "postgresql")
def _age_of_postgres(element: Any, compiler: Any, **settings: Any) -> str:
    time = compiler.process(element.clauses, **settings)
    return f"CASE WHEN isfinite({time}) THEN extract(epoch from clock_timestamp() - {time})::float ELSE 0 END"


@compiles(age_s, "sqlite")
def _age_of_sqlite(element: Any, compiler: Any, **settings: Any) -> str:
    return f"(julianday('now') - julianday({compiler.process(element.clauses, **settings)})) * 86400"


@compiles(new_event_id, "postgresql")
def _event_id_of_postgres(*_: Any, **__: Any) -> str:
    return "gen_random_uuid()"


@compiles(new_event_id, "sqlite")
def _event_id_of_sqlite(*_: Any, **__: Any) -> str:
    return "(lower(hex(randomblob(16))))"


@compiles(database_time_ms, "postgresql")
def _time_of_postgres(*_: Any, **__: Any) -> str:
    return "(extract(epoch from clock_timestamp()) * 1000)::bigint"


@compiles(database_time_ms, "sqlite")
def _time_of_sqlite(*_: Any, **__: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


class OutboxTables:
    """The tables of one outbox. name: of the table of rows; the others have suffixes. Raises InvalidArgument."""

    def __init__(self, *, schema: str | None = None, name: str = TABLE) -> None:
        if not name.isidentifier() or not name.isascii() or len(name) > TABLE_CHARACTERS_MAX:
            message = f"the name of a table has 1 to {TABLE_CHARACTERS_MAX} characters of A-Z a-z 0-9 _, not {name!r}"
            raise InvalidArgument(message, field="table", limit=TABLE_CHARACTERS_MAX)
        self.name = name
        self.metadata = SharedMetaData(schema=schema)
        self.rows = Table(
            name,
            self.metadata,
            Column("id", _ID, Identity(), primary_key=True),
            Column(
                "event_id", Uuid(as_uuid=False).with_variant(String(64), "sqlite"), nullable=False, unique=True,
                server_default=new_event_id(),
            ),
            Column("topic", String(800), nullable=False),
            Column("message_key", LargeBinary),
            Column("value", LargeBinary, nullable=False),
            Column("properties", JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")),
            Column("event_time_ms", BigInteger),
            Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
            # Those that follow are the relay's.
            Column("stream", Integer),
            Column("number", BigInteger),
            Column("refused", Text),
            Column("stored_at_ms", BigInteger),
            UniqueConstraint("stream", "number"),
            *(CheckConstraint(rule).ddl_if(dialect="sqlite") for rule in _SQLITE_TYPES),
            sqlite_autoincrement=True,
        )  # fmt: skip
        rows = self.rows.c
        waiting = rows.number.is_(None) & rows.refused.is_(None)
        for suffix, column, rule in (
            ("waiting", rows.id, waiting),
            ("refused", rows.id, rows.refused.is_not(None)),
            ("stored", rows.stored_at_ms, rows.stored_at_ms.is_not(None)),
        ):
            Index(f"{name}_{suffix}", column, postgresql_where=rule, sqlite_where=rule)
        self.relay = Table(
            f"{name}_relay",
            self.metadata,
            Column("one", Integer, primary_key=True, autoincrement=False),
            Column("schema_version", Integer, nullable=False),
            Column("outbox_id", String(32), nullable=False),
            Column("claim", String(32), nullable=False, server_default=""),
            Column("alive_at_ms", BigInteger, nullable=False, server_default="0"),
        )
        outbox_id = func.replace(cast(new_event_id(), Text), "-", "")
        self.first_row = insert(self.relay).values(one=1, schema_version=SCHEMA_VERSION, outbox_id=outbox_id)
        event.listen(self.relay, "after_create", lambda _, connection, **__: connection.execute(self.first_row))
        self.streams = Table(
            f"{name}_streams",
            self.metadata,
            Column("stream", Integer, Identity(), primary_key=True),
            Column("topic", String(800), nullable=False, unique=True),
            Column("topic_id", String(32), nullable=False),
            Column("next_number", BigInteger, nullable=False, server_default="0"),
            Column("confirmed", BigInteger, nullable=False, server_default="-1"),
            Column("confirmed_message", String(120), nullable=False, server_default=""),
            sqlite_autoincrement=True,
        )


def ddl_of(tables: OutboxTables, dialect_name: str) -> str:
    """The statements that create the tables, each with a semicolon."""
    dialect: Dialect = registry.load(dialect_name)()
    statements: list[str] = []
    for table in tables.metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip().replace("\t", "    "))
        statements += [str(CreateIndex(each).compile(dialect=dialect)) for each in sorted(table.indexes, key=_name)]
    statements.append(str(tables.first_row.compile(dialect=dialect, compile_kwargs={"literal_binds": True})))
    return "\n".join(line.rstrip() for statement in statements for line in f"{statement};".splitlines())


def _name(index: Index) -> str:
    return str(index.name)
