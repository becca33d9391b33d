"""`oncelog relay status`: what the tables of an outbox say."""

from dataclasses import dataclass, field
from typing import Any

from oncelog.outbox.database import OutboxDatabase

#: Refused rows that are shown.
REFUSED_MAX = 20


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """waiting, refused: counted up to 100,000. active: a relay has renewed its claim within its lease."""

    place: str
    table: str
    active: bool
    waiting: int
    oldest_s: float
    refused: int
    streams: list[dict[str, Any]] = field(default_factory=list)
    refused_rows: list[dict[str, Any]] = field(default_factory=list)


async def read_status(database: OutboxDatabase) -> OutboxStatus:
    """Closes the database. Raises StoreUnavailable."""
    await database.connect()
    try:
        backlog, active = await database.backlog(), await database.has_relay()
        streams = [stream._asdict() for stream in await database.streams()]
        refused = [refused._asdict() for refused in await database.refused_rows(REFUSED_MAX)]
        return OutboxStatus(
            database.place, database.tables.name, active, backlog.waiting, backlog.oldest_s, backlog.refused, streams,
            refused,
        )  # fmt: skip
    finally:
        await database.close()
