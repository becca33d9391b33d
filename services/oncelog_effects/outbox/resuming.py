"""`oncelog relay resume`: performs what `core.outbox.resume` decides, under the claim of the outbox."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Literal

from oncelog.core.counted import counted
from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.outbox_errors import OutboxDiverged, TopicRecreated
from oncelog_effects.core.outbox.relay import LEASE_MS
from oncelog_effects.core.outbox.resume import Happened, check_resume, recognized, undecided
from oncelog_effects.core.outbox.streams import LogMessage, Stream
from oncelog_effects.outbox.database import OutboxDatabase
from oncelog_effects.outbox.log import OpenLog, StreamLog

#: A relay that was killed keeps the claim for its lease.
CLAIM_WAIT_S = LEASE_MS / 1000 + 5.0
_CHUNK = 500
Deleted = Literal["stored", "unsent"]
#: Called with what an operator should see.
Tell = Callable[[str], None]


async def resume(
    open_log: OpenLog,
    database: OutboxDatabase,
    happened: Happened,
    topic: str,
    *,
    deleted: Deleted | None,
    tell: Tell,
    wait_s: float = CLAIM_WAIT_S,
) -> None:
    """topic: the one stream, a topic or partition; empty: all. deleted: what rows count as whose messages retention has
    deleted, so that nobody can compare them; None: it is an error if there are any. wait_s: for the claim.

    Raises StoreUnavailable while a relay has the claim, InvalidArgument for an unknown topic, and what the operator's
    word does not explain.
    """
    claim = uuid.uuid4().hex
    await database.connect()
    try:
        streams = await _claimed(database, claim, wait_s)
        chosen = [stream for stream in streams if topic in ("", stream.topic)]
        if topic and not chosen:
            known = ", ".join(stream.topic for stream in streams[:10]) or "none"
            raise InvalidArgument(f"the outbox has no stream of {topic}; it has: {known}", field="topic")
        log = open_log(database.outbox_id, database.tables.name)
        work = _Resume(database, log, claim, deleted, tell)
        try:
            for stream in chosen:
                await work.of(happened, stream)
        finally:
            await log.close_all()
        await database.release(claim)
    finally:
        await database.close()


async def _claimed(database: OutboxDatabase, claim: str, wait_s: float) -> tuple[Stream, ...]:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while (found := await database.claim(claim)) is None:
        if loop.time() > until:
            raise StoreUnavailable(
                f"{database.place}: a relay has the claim of the outbox: stop all relays of it first"
            )
        await asyncio.sleep(0.5)
    return found[0]


class _Resume:
    def __init__(
        self, database: OutboxDatabase, log: StreamLog, claim: str, deleted: Deleted | None, tell: Tell
    ) -> None:
        self._database = database
        self._log = log
        self._claim = claim
        self._deleted = deleted
        self._tell = tell

    async def of(self, happened: Happened, stream: Stream) -> None:
        if happened is Happened.OTHER_TOPIC:
            count = await self._database.forget_numbers(self._claim, stream.number, stream.confirmed)
            await self._database.delete_stream(self._claim, stream.number)
            self._tell(f"{stream.topic}: new numbers in a new stream for {counted(count, 'row')}")
            return
        opened = await self._log.open(stream.topic, 1)
        if opened.topic_id != stream.topic_id:
            raise TopicRecreated(
                f"{stream.topic} has id {opened.topic_id}, and the outbox knows id {stream.topic_id}: it is another "
                f"topic; use `oncelog relay resume --other-topic {stream.topic}`",
                topic=stream.topic,
            )
        check_resume(stream, happened, opened.last)
        if happened is Happened.LOG_LOST:
            await self._after_loss(stream, opened.last)
        else:
            await self._after_restore(stream, opened.last)

    async def _after_loss(self, stream: Stream, last: int) -> None:
        count = await self._database.forget_numbers(self._claim, stream.number, last)
        following = stream._replace(next_number=last + 1, confirmed=last, confirmed_message="")
        await self._database.write_stream(self._claim, following)
        self._tell(
            f"{stream.topic}: the log has lost {counted(stream.confirmed - last, 'message')} behind number {last}; new "
            f"numbers for {counted(count, 'row')}, kept or not sent"
        )

    async def _after_restore(self, stream: Stream, last: int) -> None:
        messages = self._behind(stream, last)
        chunk: list[LogMessage] = await anext(messages, [])
        numbers = await self._database.numbers_above(stream.number, stream.confirmed)
        first = chunk[0].number if chunk else last + 1
        unclear = undecided(stream, first, numbers)
        if unclear and self._deleted is None:
            raise OutboxDiverged(
                f"{stream.topic} has stored the numbers {unclear[0]} to {unclear[-1]}, and retention has deleted their "
                "messages, so nothing says whether they were those of the rows with these numbers. Decide, and add "
                "`--deleted stored` (the rows are stored) or `--deleted unsent` (send them)",
                topic=stream.topic,
                number=unclear[0],
            )
        if unclear and self._deleted == "stored":
            await self._database.delete_numbers(self._claim, stream.number, unclear)
        await self._database.forget_numbers(self._claim, stream.number, stream.confirmed)
        stored = lost = 0
        message_id = stream.confirmed_message if last == stream.confirmed else ""
        while chunk:
            rows = await self._database.rows_of(self._claim, [each.event_id for each in chunk])
            known = recognized(chunk, rows)
            await self._database.settle(self._claim, stream.number, known.stored)
            for event_id in known.lost:
                self._tell(f"{stream.topic}: the log has event {event_id}, and the database does not have its row")
            stored, lost = stored + len(known.stored), lost + len(known.lost)
            message_id = chunk[-1].message_id
            chunk = await anext(messages, [])
        following = stream._replace(next_number=last + 1, confirmed=last, confirmed_message=message_id)
        await self._database.write_stream(self._claim, following)
        self._tell(
            f"{stream.topic}: {counted(stored, 'row')} stored already, {counted(lost, 'message')} without a row; "
            f"next: {last + 1}"
        )

    async def _behind(self, stream: Stream, last: int) -> AsyncIterator[list[LogMessage]]:
        """What the log has behind `confirmed`, in pieces that one transaction takes."""
        async for messages in self._log.stored(stream.topic, stream.confirmed_message, last):
            new = [each for each in messages if each.number > stream.confirmed]
            for at in range(0, len(new), _CHUNK):
                yield new[at : at + _CHUNK]
