"""`oncelog relay status`: what the tables of an outbox say."""

from dataclasses import dataclass, field
from typing import Any

from oncelog_effects.outbox.database import OutboxDatabase

#: Refused rows that are shown.
REFUSED_MAX = 20
#: Topics of waiting rows that are shown.
TOPICS_MAX = 20


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """waiting, refused: counted up to 100,000. active: a relay has renewed its claim within its lease.
    waiting_topics: {topic: rows}, the topics with most of them."""

    place: str
    table: str
    active: bool
    waiting: int
    oldest_s: float
    refused: int
    streams: list[dict[str, Any]] = field(default_factory=list)
    refused_rows: list[dict[str, Any]] = field(default_factory=list)
    waiting_topics: dict[str, int] = field(default_factory=dict)


async def read_status(database: OutboxDatabase) -> OutboxStatus:
    """Closes the database. Raises StoreUnavailable, NotFound."""
    await database.connect()
    try:
        backlog, active = await database.backlog(), await database.has_relay()
        streams = [stream._asdict() for stream in await database.streams()]
        refused = [refused._asdict() for refused in await database.refused_rows(REFUSED_MAX)]
        return OutboxStatus(
            database.place, database.tables.name, active, backlog.waiting, backlog.oldest_s, backlog.refused, streams,
            refused, await database.waiting_topics(TOPICS_MAX),
        )  # fmt: skip
    finally:
        await database.close()
