"""How rows of an outbox are read, whatever their columns hold.

SQLite keeps any value in any column, text that is no UTF-8 among them. Each row is looked at, and one that cannot be
sent says so: `wrong_type`. PostgreSQL has one type for all values of a column, so the columns are looked at, when the
relay connects.
"""

from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    null,
    select,
    text,
    type_coerce,
)
from sqlalchemy.types import NULLTYPE

from oncelog.core.outbox_errors import OutboxDiverged, OutboxMisuse
from oncelog_effects.core.outbox.rows import EXTRAS_BYTES_MAX, RowHead, wrong_type
from oncelog_effects.outbox.tables import OutboxTables

_BYTES = (bytes, bytearray, memoryview, str)
_GIVE_BYTES = "bytes (a blob), or text"
#: {column: types of PostgreSQL that are as good as the table's own}; others fail, or change what is sent.
_POSTGRES_TYPES = {
    "event_id": ("uuid", "text", "character varying"),
    "topic": ("character varying", "text"),
    "message_key": ("bytea", "text", "character varying"),
    "value": ("bytea", "text", "character varying"),
    "properties": ("jsonb", "json", "text", "character varying"),
    "event_time_ms": ("bigint", "integer"),
    "created_at": ("timestamp with time zone", "timestamp without time zone"),
}
_COLUMNS_OF_POSTGRES = text(
    "SELECT attname, format_type(coalesce(nullif(typbasetype, 0), pg_type.oid), NULL) FROM pg_attribute "
    "JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = to_regclass(:name) AND attname = ANY(:columns)"
).bindparams(bindparam("columns"))


class OutboxRow(NamedTuple):
    """What is sent of a numbered row. properties: JSON, or None."""

    number: int
    event_id: str
    key: bytes | None
    value: bytes
    properties: str | None
    event_time_ms: int | None


class RowReading:
    """What is selected of a row: `head`, for `head_of`; `sent`, for `sent_of`; `size`, of value, key and properties."""

    def __init__(self, tables: OutboxTables, *, is_sqlite: bool) -> None:
        rows = tables.rows.c
        self._is_sqlite = is_sqlite
        # Without a type: SQLAlchemy makes as many zero bytes of a number as it says.
        key, value = type_coerce(rows.message_key, NULLTYPE), type_coerce(rows.value, NULLTYPE)
        json = cast(rows.properties, Text)
        json_bytes = func.coalesce(self._bytes_of(json), 0)
        short_json = case((json_bytes <= EXTRAS_BYTES_MAX, json), (rows.properties.is_(None), null()), else_="")
        short_key: ColumnElement[Any] = func.substr(key, 1, EXTRAS_BYTES_MAX + 1)  # enough to refuse it
        no_bytes: ColumnElement[Any] = null()
        if is_sqlite:
            of_bytes = ("blob", "text")
            short_key = case((func.typeof(key).in_(of_bytes), short_key), else_=key)
            no_bytes = case((func.typeof(value).in_(of_bytes), null()), else_=value)
        value_bytes = self._bytes_of(rows.value)
        self.size = value_bytes + func.coalesce(self._bytes_of(rows.message_key), 0) + json_bytes
        self.head = (
            rows.id, rows.event_id, rows.topic, type_coerce(short_key, NULLTYPE), value_bytes, short_json,
            rows.event_time_ms, type_coerce(no_bytes, NULLTYPE),
        )  # fmt: skip
        self.sent = rows.number, rows.event_id, key, value, json, rows.event_time_ms

    def _bytes_of(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        """Of text, too, of which `length` counts the characters."""
        return func.length(cast(column, LargeBinary)) if self._is_sqlite else func.octet_length(column)


def head_of(row: Any) -> RowHead:
    """row: of RowReading.head."""
    identity, event_id, topic, key, size_bytes, properties, time_ms, no_bytes = row
    flaw = _flaw(event_id, key, no_bytes, time_ms) or wrong_type("topic", topic, (str,), "text")
    if flaw:
        return RowHead(identity, "", "", None, size_bytes, None, None, flaw)
    return RowHead(identity, event_id, topic, _blob(key), size_bytes, properties, time_ms)


def sent_of(row: Any) -> OutboxRow:
    """row: of RowReading.sent. Raises OutboxDiverged."""
    number, event_id, key, value, properties, time_ms = row
    flaw = _flaw(event_id, key, value, time_ms)
    if flaw:
        raise OutboxDiverged(
            f"the row with number {number} of the outbox cannot be sent: {flaw}. It has got its number from an older "
            "version of the relay, or was changed since. To refuse it, and number the others anew, stop all relays of "
            "this outbox, and run `oncelog relay resume --after-restore`",
            number=number,
        )
    return OutboxRow(number, event_id, _blob(key), _blob(value) or b"", properties, time_ms)


def _flaw(event_id: object, key: object, value: object, time_ms: object) -> str:
    return (
        wrong_type("event_id", event_id, (str,), "text")
        or wrong_type("message_key", key, _BYTES, f"{_GIVE_BYTES}, or null")
        or wrong_type("value", value, _BYTES, _GIVE_BYTES)
        or wrong_type("event_time_ms", time_ms, (int,), "whole milliseconds since 1970, or null")
    )


def _blob(value: Any) -> bytes | None:
    """SQLite gives text where the application has inserted text."""
    if value is None:
        return None
    return value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)


def read_any_text(connection: Connection) -> None:
    """From SQLite: bytes that are no UTF-8 become surrogates, which no message takes, instead of an error of the whole
    statement."""
    driver: Any = connection.connection.driver_connection
    driver.text_factory = lambda data: data.decode(errors="surrogateescape")


def check_postgres(connection: Connection, tables: OutboxTables, place: str) -> None:
    """Raises OutboxMisuse for tables that administrators have created with other columns."""
    name = connection.dialect.identifier_preparer.format_table(tables.rows)
    sequence = func.to_regclass(func.pg_get_serial_sequence(name, "id"))
    cached = select(text("seqcache")).select_from(text("pg_sequence")).where(column("seqrelid") == sequence)
    if (connection.execute(cached).scalar() or 1) > 1:
        raise OutboxMisuse(
            f"{place}: the sequence of {name}.id has a cache, so ids do not say which transaction came first: use "
            "ALTER SEQUENCE … CACHE 1"
        )
    for found, kind in connection.execute(_COLUMNS_OF_POSTGRES, {"name": name, "columns": list(_POSTGRES_TYPES)}):
        if kind not in _POSTGRES_TYPES[found]:
            raise OutboxMisuse(
                f"{place}: column {found} of {name} has type {kind}, with which no row can be sent as it is: change it "
                f"to {_POSTGRES_TYPES[found][0]}, as `oncelog relay ddl` shows"
            )
