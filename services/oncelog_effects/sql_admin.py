"""The tables of `SqlEffects`, for operators: what they have, and the changes that no program makes by itself."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, create_engine, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from oncelog.core.errors import InvalidArgument, NotFound, StoreUnavailable
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.sql_schema import DIALECTS, since
from oncelog_effects.sql_session import said_by
from oncelog_effects.sql_store import SqlEffects, position_of
from oncelog_effects.sql_tables import SCHEMA_VERSION
from oncelog_effects.store import SourceNames


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row. applied: transactions with effects. updated_ms: of the last transaction with effects, ms since 1970."""

    source: Source
    names: SourceNames
    stored: StoredPosition
    applied: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class StoreView:
    """What a store says of itself. rows: by effect, topic and partition. missing: the table of rows, if it was dropped:
    a program finds no row then."""

    place: str
    store_id: str
    schema_version: int
    rows: tuple[SourceRow, ...]
    missing: str = ""


class SqlAdmin:
    """One store. Every method raises StoreUnavailable if the database does not do it."""

    def __init__(self, url: str, *, schema: str | None = None, prefix: str = "oncelog") -> None:
        """url: of SQLAlchemy, with a synchronous driver. Raises InvalidArgument, NotFound for a missing file."""
        self._engine = _engine_of(url)
        self._effects = SqlEffects(self._engine, schema=schema, prefix=prefix)
        self._tables = self._effects.tables
        self.place = self._effects.place

    def close(self) -> None:
        self._engine.dispose()

    def view(self) -> StoreView:
        """Changes nothing. Raises NotFound if the table that says who the store is is missing or empty."""
        meta, effects = self._tables.meta.c, self._tables.effects
        with self._begun() as connection:
            if not inspect(connection).has_table(self._tables.meta.name, schema=self._tables.meta.schema):
                raise NotFound(
                    f"{self.place} has no table {self._tables.meta}: no program with effects has used it, or it uses "
                    "another --schema or --prefix"
                )
            known = connection.execute(select(meta.schema_version, meta.store_id)).one_or_none()
            if known is None:
                raise NotFound(f"{self.place}: the table {self._tables.meta} is empty: no program has used it yet")
            if not inspect(connection).has_table(effects.name, schema=effects.schema):
                return StoreView(self.place, known.store_id, known.schema_version, (), missing=str(effects))
            there = [column for column in effects.columns if since(column) <= known.schema_version]
            ordered = select(*there).order_by(effects.c.effect, effects.c.topic, effects.c.partition_no)
            rows = tuple(_row_of(row) for row in connection.execute(ordered))
        return StoreView(self.place, known.store_id, known.schema_version, rows)

    def created(self) -> StoreView:
        """As `view`, after the tables were created, if they are missing, and the store has proved to roll back."""
        try:
            view = self.view()
        except NotFound:
            view = None
        if view is None or view.missing:
            asyncio.run(self._effects.store_id())
            view = self.view()
        return view

    def put(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        """`SqlEffects.claim`: waits for transactions that are under way, and voids the claim of whoever has it."""
        return asyncio.run(self._effects.claim(source, names, decide))

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"{self.place}: {said_by(error)}") from error


def schema_is_old(view: StoreView) -> bool:
    return view.schema_version < SCHEMA_VERSION


def _engine_of(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in DIALECTS:
            message = f"{parsed.get_backend_name()} is not supported: use one of {', '.join(DIALECTS)}"
            raise InvalidArgument(message, field="database")
        engine = create_engine(parsed)
    except (ArgumentError, NoSuchModuleError) as error:
        raise InvalidArgument(
            "this is no URL of a database: use postgresql+psycopg://USER@HOST/NAME or sqlite:///PATH", field="database"
        ) from error
    except ModuleNotFoundError as error:
        message = f"the driver {error.name} is not installed: install it, or name another one, as postgresql+psycopg"
        raise InvalidArgument(message, field="database") from error
    if engine.dialect.is_async:
        message = f"{engine.driver} is an asynchronous driver: use postgresql+psycopg:// or sqlite:// here"
        raise InvalidArgument(message, field="database")
    if engine.dialect.name == "sqlite" and not Path(parsed.database or "").is_file():
        raise NotFound(f"there is no database file {parsed.database or '(in memory)'}")
    return engine


def _row_of(row: Row[Any]) -> SourceRow:
    return SourceRow(
        Source(row.effect, row.topic_id, row.partition_no),
        SourceNames(row.topic, row.subscription, getattr(row, "cluster_id", "")),
        position_of(row),
        row.applied,
        _ms_of(row.updated_at),
    )


def _ms_of(moment: datetime) -> int:
    """SQLite gives times without a zone; they are UTC."""
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
