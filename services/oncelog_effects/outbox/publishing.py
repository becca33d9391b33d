"""`publish`: a row of the outbox in the transaction of the application."""

import json
import uuid
from collections.abc import Awaitable, Mapping
from functools import cache
from typing import Any, overload

from sqlalchemy import Connection, Insert, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from oncelog.client.producing.message_arguments import Key, plain_bytes, plain_key
from oncelog.client.values.arguments import check_type
from oncelog.core.errors import InvalidArgument, MessageTooLarge
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.columns import check_event_times
from oncelog.core.names import parse_topic
from oncelog.core.outbox_errors import OutboxMisuse
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from oncelog_effects.core.outbox.rows import RowHead, check_row
from oncelog_effects.outbox.tables import TABLE, OutboxTables


@overload
def publish(
    connection: Connection | Session, topic: str, value: Buffer, *, key: Key | None = None,
    properties: Mapping[str, str] | None = None, event_id: uuid.UUID | None = None, event_time_ms: int | None = None,
    table: str = TABLE, schema: str | None = None,
) -> uuid.UUID: ...  # fmt: skip
@overload
def publish(
    connection: AsyncConnection | AsyncSession, topic: str, value: Buffer, *, key: Key | None = None,
    properties: Mapping[str, str] | None = None, event_id: uuid.UUID | None = None, event_time_ms: int | None = None,
    table: str = TABLE, schema: str | None = None,
) -> Awaitable[uuid.UUID]: ...  # fmt: skip


def publish(
    connection: Any,
    topic: str,
    value: Buffer,
    *,
    key: Key | None = None,
    properties: Mapping[str, str] | None = None,
    event_id: uuid.UUID | None = None,
    event_time_ms: int | None = None,
    table: str = TABLE,
    schema: str | None = None,
) -> uuid.UUID | Awaitable[uuid.UUID]:
    """Insert a message into the outbox, in the transaction that is open: it is sent if the transaction is committed.

    Args:
        connection: of SQLAlchemy, or a Session; with an AsyncConnection or AsyncSession, the result is awaited.
        topic: as in `create_producer`. Of a partitioned topic, the message goes to the partition of its key, else to
            that of its event id.
        value: bytes, bytearray or memoryview; up to 5 MiB, or the limit of the topic if that is lower.
        key: bytes or text (stored as UTF-8); with the properties up to 48 KiB.
        properties: text to text. The message also has the property `oncelog.event_id`.
        event_id: of the message; None: a random one. A second row with the same id violates a constraint of the table,
            so an id that the application derives from a request makes the request's repetition fail.
        event_time_ms: as in `send` of a producer.
        table, schema: of the outbox; None: the default schema.

    Returns the event id. Raises OutboxMisuse without a transaction, InvalidName, InvalidArgument, MessageTooLarge, and
    what SQLAlchemy raises.
    """
    check_type("event_id", event_id, (uuid.UUID, type(None)), "a UUID")
    identity = uuid.uuid4() if event_id is None else event_id
    row = row_of(topic, value, key, properties, identity, event_time_ms)
    statement = insert(_tables(table, schema).rows)
    if isinstance(connection, AsyncConnection | AsyncSession):
        return _publish_async(connection, statement, row, identity)
    check_type("connection", connection, (Connection, Session), "a connection or session of SQLAlchemy")
    _insert(connection, statement, row)
    return identity


async def _publish_async(
    connection: AsyncConnection | AsyncSession, statement: Insert, row: dict[str, Any], identity: uuid.UUID
) -> uuid.UUID:
    await connection.run_sync(lambda sync: _insert(sync, statement, row))
    return identity


def row_of(
    topic: str,
    value: Buffer,
    key: Key | None,
    properties: Mapping[str, str] | None,
    event_id: uuid.UUID,
    event_time_ms: int | None,
) -> dict[str, Any]:
    """The columns of a row, checked here, at the edge: what the relay refuses later, nobody would look at."""
    name, packed, packed_key = str(parse_topic(topic)), plain_bytes(value, field="value"), plain_key(key)
    if len(packed) > MESSAGE_BYTES_MAX:
        message = f"the value has {len(packed)} bytes, the limit is {MESSAGE_BYTES_MAX}"
        raise MessageTooLarge(message, field="value", limit=MESSAGE_BYTES_MAX)
    if properties is not None:
        check_type("properties", properties, Mapping, "a mapping of text to text")
    text = json.dumps(dict(properties)) if properties else None
    check_type("event_time_ms", event_time_ms, (int, type(None)), "milliseconds since 1970")
    check_event_times([event_time_ms])
    checked = check_row(RowHead(0, str(event_id), name, packed_key, len(packed), text, event_time_ms))
    if isinstance(checked, str):
        raise InvalidArgument(checked, field="properties")
    return {
        "event_id": str(event_id), "topic": name, "message_key": packed_key, "value": packed,
        "properties": dict(properties) if properties else None, "event_time_ms": event_time_ms,
    }  # fmt: skip


@cache
def _tables(table: str, schema: str | None) -> OutboxTables:
    return OutboxTables(schema=schema, name=table)


def _insert(connection: Connection | Session, statement: Insert, row: dict[str, Any]) -> None:
    if not connection.in_transaction():
        raise OutboxMisuse(
            "publish needs an open transaction, in which the application's own changes are: "
            "use `with engine.begin() as connection:` or `with session.begin():`"
        )
    real = connection.connection() if isinstance(connection, Session) else connection
    driver: Any = real.connection.driver_connection
    if getattr(driver, "autocommit", False) is True:
        raise OutboxMisuse("the connection commits each statement: do not use the isolation level AUTOCOMMIT")
    connection.execute(statement, row)
    if getattr(driver, "in_transaction", True) is False:
        raise OutboxMisuse(
            "the connection commits each statement, and so has committed the row: do not use the isolation level "
            "AUTOCOMMIT"
        )
