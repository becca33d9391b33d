"""How an outbox reaches its database."""

from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog_effects.sql_schema import DIALECTS


def engine_of(url: str, *, create_file: bool) -> Engine:
    """Raises InvalidArgument, and NotFound if the directory of a SQLite file is missing, or, without create_file, the
    file."""
    try:
        engine = create_engine(url, poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        message = (
            f"not an address of a database that is supported here: {error}; use for example "
            "postgresql+psycopg://HOST/NAME or sqlite:////PATH, and install the driver"
        )
        raise InvalidArgument(message, field="database") from error
    if engine.dialect.name not in DIALECTS or engine.dialect.is_async:
        message = f"{engine.url.drivername} is not supported: use {' or '.join(DIALECTS)}, and a synchronous driver"
        raise InvalidArgument(message, field="database")
    path = engine.url.database or ""
    if engine.dialect.name == "sqlite" and path not in ("", ":memory:") and not path.startswith("file:"):
        if not Path(path).parent.is_dir():
            raise NotFound(f"there is no directory {Path(path).parent} for the database file {path}")
        if not create_file and not Path(path).is_file():
            raise NotFound(f"there is no database file {path}")
    return engine
