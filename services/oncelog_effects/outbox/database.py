"""The outbox in its database, on one connection of its own. `core.outbox.relay` says what each call is for.

Every call runs in the one thread of the connection, in the order in which it was made, and is one transaction. A call
that fails leaves its outcome unknown: the connection is closed, and the relay begins at the claim.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from oncelog.core.effect_errors import StoreNotTransactional, StoreSchemaTooNew
from oncelog.core.errors import NotFound, StoreUnavailable
from oncelog.core.outbox_errors import OutboxDiverged
from oncelog_effects.core.outbox.events import Assigned, Refused
from oncelog_effects.core.outbox.relay import LEASE_MS
from oncelog_effects.core.outbox.resume import StoredRow
from oncelog_effects.core.outbox.rows import NumberedRow, RowHead, printable
from oncelog_effects.core.outbox.streams import Stream
from oncelog_effects.outbox.engine import engine_of
from oncelog_effects.outbox.row_reading import OutboxRow, RowReading, check_postgres, head_of, read_any_text, sent_of
from oncelog_effects.outbox.tables import SCHEMA_VERSION, OutboxTables, age_s, database_time_ms
from oncelog_effects.sql_session import TransactionLimit, limit_connecting, limit_stall, said_by
from oncelog_effects.sql_store import TRANSACTION_TIMEOUT_S

ResultT = TypeVar("ResultT")
#: Rows that are counted at most: the index is read up to them.
COUNTED_MAX = 100_000


class ClaimLost(Exception):
    """Another relay has the claim: nothing was written."""


class Backlog(NamedTuple):
    """waiting: rows without a number, up to COUNTED_MAX. oldest_s: the age of the first of them."""

    waiting: int
    oldest_s: float
    refused: int


class OutboxDatabase:
    """url: of SQLAlchemy, with any synchronous driver. keep_ms: how long stored rows stay; 0: they are deleted. Raises
    InvalidArgument, and NotFound if the directory of a SQLite file is missing, or the file, which is not created
    without create_tables. limit_s: of a transaction, after which its connection is shut."""

    def __init__(
        self,
        url: str,
        tables: OutboxTables,
        *,
        create_tables: bool = True,
        keep_ms: int = 0,
        lease_ms: int = LEASE_MS,
        limit_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        self.tables = tables
        self.outbox_id = ""
        self._engine = engine_of(url, create_file=create_tables)
        self._create_tables = create_tables
        self._keep_ms = keep_ms
        self._limit = TransactionLimit(limit_s)
        self._lease_ms = lease_ms
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        limit_connecting(self._engine, limit_s)
        self._reading = RowReading(tables, is_sqlite=self._is_sqlite)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._connection: Connection | None = None

    @property
    def keeps(self) -> bool:
        return self._keep_ms > 0

    @property
    def place(self) -> str:
        """For messages: the database, without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    # --- connection ---------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Raises StoreUnavailable, StoreSchemaTooNew, StoreNotTransactional, and NotFound for missing tables."""
        try:
            await self._in_thread(self._connect)
        except SQLAlchemyError:
            await self.disconnect()
            await self._in_thread(self._connect)  # another relay has created the same tables at the same time

    async def disconnect(self) -> None:
        await self._in_thread(self._disconnect)

    async def close(self) -> None:
        await self.disconnect()
        self._thread.shutdown()

    def _connect(self) -> None:
        self._connection = connection = self._engine.connect()
        if self._is_sqlite:
            read_any_text(connection)
        else:
            self._limit.watch(connection)
        limit_stall(connection, self._lease_ms, local=False)
        connection.commit()
        if self._is_sqlite and connection.exec_driver_sql("PRAGMA synchronous").scalar_one() < 2:
            raise StoreNotTransactional(f"{self.place}: PRAGMA synchronous must be FULL or EXTRA")
        connection.rollback()
        self._perform(self._prepare, writes=True)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.invalidate()  # its state is unknown; no pool gets it back
                connection.close()
            except SQLAlchemyError:
                pass  # it is broken already

    def _prepare(self, connection: Connection) -> None:
        if self._create_tables and not self.outbox_id:
            self.tables.metadata.create_all(connection)
        else:
            self._require_tables(connection)
        if not self._is_sqlite:
            check_postgres(connection, self.tables, self.place)
        relay = self.tables.relay
        wanted = select(relay.c.schema_version, relay.c.outbox_id)
        row = connection.execute(wanted).one_or_none()
        if row is None:
            self._raise_if_gone(f"no row in {relay}")
            # The tables were created without their first row, or by an older version.
            connection.execute(self.tables.first_row)
            row = connection.execute(wanted).one()
        if row.schema_version > SCHEMA_VERSION:
            raise StoreSchemaTooNew(
                f"{self.place}: the tables of the outbox have schema version {row.schema_version}, and this version "
                f"of oncelog knows {SCHEMA_VERSION}: upgrade oncelog"
            )
        self.outbox_id = row.outbox_id

    def _require_tables(self, connection: Connection) -> None:
        found = inspect(connection)
        for table in self.tables.metadata.sorted_tables:
            if not found.has_table(table.name, schema=table.schema):
                self._raise_if_gone(f"no table {table}")
                raise NotFound(
                    f"{self.place} has no table {table}: no relay has used this database, or it uses another --table "
                    "or --schema. `oncelog relay run` creates the tables, and `oncelog relay ddl` prints the statements"
                )

    def _raise_if_gone(self, what: str) -> None:
        """A restore fills a database bit by bit: nothing of ours may be created in it meanwhile."""
        if self.outbox_id:
            raise StoreUnavailable(
                f"{self.place} has {what} any more, which was there when this relay began: is the database being "
                "restored? The relay goes on when it is back; to begin with new tables, start the relay again"
            )

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        limit = TransactionLimit(self._limit.seconds)

        def limited() -> ResultT:
            self._limit = limit
            if not (self._is_sqlite or self._connection is None or self._connection.invalidated):
                limit.watch(self._connection)
            return work()

        try:
            with limit.running():
                return await asyncio.get_running_loop().run_in_executor(self._thread, limited)
        except SQLAlchemyError as error:
            if limit.expired:
                message = f"{self.place}: a transaction has taken longer than {limit.seconds:g} s: is its host silent?"
                raise StoreUnavailable(message) from error
            raise StoreUnavailable(f"{self.place}: {said_by(error)}") from error

    async def _transact(self, work: Callable[[Connection], ResultT], *, writes: bool = True) -> ResultT:
        return await self._in_thread(lambda: self._perform(work, writes=writes))

    def _perform(self, work: Callable[[Connection], ResultT], *, writes: bool) -> ResultT:
        connection = self._connection
        if connection is None:
            raise StoreUnavailable(f"{self.place}: the connection is closed")
        try:
            if writes and self._is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            connection.commit()
        except BaseException:
            if not connection.invalidated:
                connection.rollback()
            raise
        return result

    # --- the claim ----------------------------------------------------------------------------------------------------

    async def claim(self, claim: str) -> tuple[tuple[Stream, ...], dict[int, tuple[NumberedRow, ...]]] | None:
        """Streams, and the rows of each that are numbered and not confirmed; None: another relay has the claim."""
        return await self._transact(lambda connection: self._claim(connection, claim))

    def _claim(self, connection: Connection, claim: str) -> Any:
        relay, now = self.tables.relay, database_time_ms()
        alive = relay.c.alive_at_ms
        # A time that is far ahead is of a clock that was set back.
        free = (relay.c.claim.in_(["", claim])) | (alive < now - self._lease_ms) | (alive > now + self._lease_ms)
        if connection.execute(update(relay).where(free).values(claim=claim, alive_at_ms=now)).rowcount != 1:
            return None
        rows, streams = self.tables.rows, self.tables.streams
        known = tuple(Stream(*row) for row in connection.execute(select(*_stream_columns(streams))))
        last = max((stream.number for stream in known), default=0)
        orphan = (rows.c.stream > last) & rows.c.stored_at_ms.is_(None)
        if connection.execute(select(rows.c.topic).where(orphan).limit(1)).first() is not None:
            raise OutboxDiverged(
                f"{self.place}: rows of {self.tables.name} have numbers of streams that {streams.name} does not have: "
                "restore that table; or, to send these rows (again), set their stream and number to null"
            )
        numbered: dict[int, list[NumberedRow]] = {}
        found = connection.execute(
            select(rows.c.stream, rows.c.number, rows.c.event_id, self._reading.size)
            .join(streams, (rows.c.stream == streams.c.stream) & (rows.c.number > streams.c.confirmed))
            .order_by(rows.c.stream, rows.c.number)
        )
        for stream, *row in found:
            numbered.setdefault(stream, []).append(NumberedRow(*row))
        return known, {stream: tuple(each) for stream, each in numbered.items()}

    async def renew(self, claim: str) -> Backlog:
        """Raises ClaimLost."""
        return await self._transact(lambda connection: self._renew(connection, claim))

    def _renew(self, connection: Connection, claim: str) -> Backlog:
        self._lock(connection, claim)
        return self._backlog(connection)

    def _lock(self, connection: Connection, claim: str) -> None:
        """The row of the relay is locked from here on: nobody claims before this transaction ends."""
        relay = self.tables.relay
        statement = update(relay).where(relay.c.claim == claim).values(alive_at_ms=database_time_ms())
        if connection.execute(statement).rowcount != 1:
            raise ClaimLost

    async def release(self, claim: str) -> None:
        relay = self.tables.relay
        await self._transact(lambda c: c.execute(update(relay).where(relay.c.claim == claim).values(claim="")))

    async def has_relay(self) -> bool:
        """Whether a relay has renewed its claim within its lease."""
        relay = self.tables.relay.c
        alive = (relay.claim != "") & (relay.alive_at_ms >= database_time_ms() - self._lease_ms)
        return await self._transact(lambda c: bool(c.execute(select(alive)).scalar()), writes=False)

    async def refused_rows(self, count: int) -> tuple[Refused, ...]:
        """The newest ones."""
        rows = self.tables.rows.c
        statement = select(rows.id, rows.refused).where(rows.refused.is_not(None)).order_by(rows.id.desc()).limit(count)
        return await self._transact(lambda c: tuple(Refused(*row) for row in c.execute(statement)), writes=False)

    async def waiting_topics(self, count: int) -> dict[str, int]:
        """{topic: waiting rows}, of the first COUNTED_MAX waiting rows; the topics with most of them."""
        rows = self.tables.rows.c
        some = select(rows.topic).where(self._waiting).order_by(rows.id).limit(COUNTED_MAX).subquery()
        each = func.count()
        wanted = select(some.c.topic, each).group_by(some.c.topic).order_by(each.desc(), some.c.topic).limit(count)
        return await self._transact(
            lambda c: {printable(str(row[0])): row[1] for row in c.execute(wanted)}, writes=False
        )

    async def backlog(self) -> Backlog:
        return await self._transact(self._backlog, writes=False)

    def _backlog(self, connection: Connection) -> Backlog:
        rows = self.tables.rows
        counts = []
        for rule in (self._waiting, rows.c.refused.is_not(None)):
            some = select(rows.c.id).where(rule).limit(COUNTED_MAX).subquery()
            counts.append(connection.execute(select(func.count()).select_from(some)).scalar_one())
        first = select(age_s(rows.c.created_at)).where(self._waiting).order_by(rows.c.id).limit(1)
        return Backlog(counts[0], max(0.0, connection.execute(first).scalar() or 0.0), counts[1])

    # --- rows ---------------------------------------------------------------------------------------------------------

    @property
    def _waiting(self) -> ColumnElement[bool]:
        return self.tables.rows.c.number.is_(None) & self.tables.rows.c.refused.is_(None)

    async def look(self, count: int, except_topics: Sequence[str]) -> tuple[RowHead, ...]:
        return await self._transact(lambda connection: self._look(connection, count, except_topics), writes=False)

    def _look(self, connection: Connection, count: int, except_topics: Sequence[str]) -> tuple[RowHead, ...]:
        rows = self.tables.rows.c
        wanted = self._waiting
        if except_topics:
            # One parameter, as a statement takes a limited number of them; compared by a hash.
            given = list(except_topics)
            names = (
                func.json_each(cast(json.dumps(given), Text))
                if self._is_sqlite
                else func.json_array_elements_text(cast(given, JSON))
            )
            wanted &= rows.topic.not_in(select(names.table_valued("value").c.value))
        found = connection.execute(select(*self._reading.head).where(wanted).order_by(rows.id).limit(count))
        return tuple(head_of(row) for row in found)

    async def number(self, claim: str, assigned: Sequence[Assigned], refused: Sequence[Refused]) -> bool:
        """False: nothing was written, because a row is gone. Raises ClaimLost."""
        try:
            await self._transact(lambda connection: self._number(connection, claim, assigned, refused))
        except _RowGone:
            return False
        return True

    def _number(
        self, connection: Connection, claim: str, assigned: Sequence[Assigned], refused: Sequence[Refused]
    ) -> None:
        self._lock(connection, claim)
        rows = self.tables.rows
        mine = update(rows).where(rows.c.id == bindparam("row"), self._waiting)
        if refused:
            statement = mine.values(refused=bindparam("reason"))
            connection.execute(statement, [each._asdict() for each in refused])
        if not assigned:
            return
        statement = mine.values(stream=bindparam("in_stream"), number=bindparam("as_number"))
        connection.execute(statement, [{"row": r, "in_stream": s, "as_number": n} for r, s, n in assigned])
        ranges: dict[int, list[int]] = {}
        for each in assigned:
            ranges.setdefault(each.stream, []).append(each.number)
        streams = self.tables.streams
        for stream, numbers in ranges.items():
            given = rows.c.number.between(numbers[0], numbers[-1])
            count = select(func.count()).select_from(rows).where(rows.c.stream == stream, given)
            if connection.execute(count).scalar_one() != len(numbers):
                raise _RowGone
            wanted = (streams.c.stream == stream) & (streams.c.next_number == numbers[0])
            if connection.execute(update(streams).where(wanted).values(next_number=numbers[-1] + 1)).rowcount != 1:
                raise ClaimLost

    async def load(self, stream: int, first: int, last: int) -> tuple[OutboxRow, ...]:
        """The rows with these numbers. Raises StoreUnavailable if one is missing: it was deleted by hand; and
        OutboxDiverged if one has a type that cannot be sent."""

        def work(connection: Connection) -> tuple[OutboxRow, ...]:
            rows = self.tables.rows.c
            given = (rows.stream == stream) & rows.number.between(first, last)
            found = connection.execute(select(*self._reading.sent).where(given).order_by(rows.number))
            return tuple(sent_of(row) for row in found)

        loaded = await self._transact(work, writes=False)
        if len(loaded) != last - first + 1:
            raise StoreUnavailable(f"{self.place}: rows {first} to {last} of stream {stream} were changed by hand")
        return loaded

    async def confirm(self, claim: str, stream: int, up_to: int, message_id: str) -> None:
        """Raises ClaimLost."""
        rows, streams = self.tables.rows, self.tables.streams

        def work(connection: Connection) -> None:
            self._lock(connection, claim)
            stored = (rows.c.stream == stream) & (rows.c.number <= up_to) & rows.c.stored_at_ms.is_(None)
            connection.execute(self._settle(stored))
            values = {"confirmed": up_to, "confirmed_message": message_id}
            connection.execute(update(streams).where(streams.c.stream == stream).values(**values))

        await self._transact(work)

    def _settle(self, which: ColumnElement[bool]) -> Any:
        rows = self.tables.rows
        return (
            update(rows).where(which).values(stored_at_ms=database_time_ms())
            if self._keep_ms
            else delete(rows).where(which)
        )

    async def prune(self, claim: str, count: int) -> int:
        rows = self.tables.rows

        def work(connection: Connection) -> int:
            self._lock(connection, claim)
            old = rows.c.stored_at_ms < database_time_ms() - self._keep_ms
            some = select(rows.c.id).where(old).order_by(rows.c.stored_at_ms).limit(count)
            return connection.execute(delete(rows).where(rows.c.id.in_(some))).rowcount

        return await self._transact(work)

    async def create_stream(self, claim: str, topic: str, topic_id: str) -> Stream:
        streams = self.tables.streams

        def work(connection: Connection) -> Stream:
            self._lock(connection, claim)
            made = insert(streams).values(topic=topic, topic_id=topic_id).returning(streams.c.stream)
            return Stream(connection.execute(made).scalar_one(), topic, topic_id)

        return await self._transact(work)

    async def streams(self) -> tuple[Stream, ...]:
        statement = select(*_stream_columns(self.tables.streams)).order_by(self.tables.streams.c.topic)
        return await self._transact(lambda c: tuple(Stream(*row) for row in c.execute(statement)), writes=False)

    # --- resume -------------------------------------------------------------------------------------------------------

    async def rows_of(self, claim: str, event_ids: Sequence[str]) -> Mapping[str, int]:
        """{event id: row}, of those that are there."""
        rows = self.tables.rows.c

        def work(connection: Connection) -> Mapping[str, int]:
            self._lock(connection, claim)
            known = [each for each in event_ids if self._is_sqlite or _is_uuid(each)]
            found = connection.execute(select(rows.event_id, rows.id).where(rows.event_id.in_(known)))
            return {str(event_id): row for event_id, row in found}

        return await self._transact(work)

    async def numbers_above(self, stream: int, number: int) -> tuple[int, ...]:
        rows = self.tables.rows.c
        statement = select(rows.number).where(rows.stream == stream, rows.number > number).order_by(rows.number)
        return await self._transact(lambda c: tuple(c.execute(statement).scalars()), writes=False)

    async def forget_numbers(self, claim: str, stream: int, above: int) -> int:
        """Rows above this number, also kept ones, have none any more. Returns how many."""
        rows = self.tables.rows
        statement = update(rows).where(rows.c.stream == stream, rows.c.number > above)
        return await self._locked(claim, statement.values(stream=None, number=None, stored_at_ms=None))

    async def settle(self, claim: str, stream: int, stored: Sequence[StoredRow]) -> None:
        """The log has these rows."""
        rows = self.tables.rows

        def work(connection: Connection) -> None:
            self._lock(connection, claim)
            if self._keep_ms:
                values = {"stream": stream, "number": bindparam("as_number"), "stored_at_ms": database_time_ms()}
                statement = update(rows).where(rows.c.id == bindparam("row")).values(**values, refused=None)
                connection.execute(statement, [{"row": row, "as_number": number} for row, number in stored])
            else:
                connection.execute(delete(rows).where(rows.c.id.in_([each.row for each in stored])))

        if stored:
            await self._transact(work)

    async def delete_numbers(self, claim: str, stream: int, numbers: Sequence[int]) -> None:
        rows = self.tables.rows
        given = rows.c.number.between(numbers[0], numbers[-1])
        await self._locked(claim, delete(rows).where(rows.c.stream == stream, given))

    async def write_stream(self, claim: str, stream: Stream) -> None:
        streams = self.tables.streams
        values = {
            "next_number": stream.next_number, "confirmed": stream.confirmed,
            "confirmed_message": stream.confirmed_message,
        }  # fmt: skip
        await self._locked(claim, update(streams).where(streams.c.stream == stream.number).values(**values))

    async def delete_stream(self, claim: str, stream: int) -> None:
        streams = self.tables.streams
        await self._locked(claim, delete(streams).where(streams.c.stream == stream))

    async def _locked(self, claim: str, statement: Any) -> int:
        def work(connection: Connection) -> int:
            self._lock(connection, claim)
            return int(connection.execute(statement).rowcount)

        return await self._transact(work)


class _RowGone(Exception):
    """Ends the transaction that would have numbered it."""


def _stream_columns(streams: Any) -> tuple[Any, ...]:
    """In the order of Stream."""
    c = streams.c
    return c.stream, c.topic, c.topic_id, c.next_number, c.confirmed, c.confirmed_message


def _is_uuid(text: str) -> bool:
    """PostgreSQL refuses any other text."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
