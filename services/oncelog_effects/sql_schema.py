"""How the tables of `SqlEffects` come into being, and get what a later version has added.

    no tables -> created -> the row of `meta`: store id and versions
    older tables -> missing columns are added, under the lock of that row -> its schema_version is written

Rules
- Changes of the tables only add columns and tables; a column that is not of version 1 says `info={"since": version}`,
  and takes null or has a default. So programs of the former version go on, unless `reads_from` refuses them.
- With `create_tables=False` no program changes the schema: an administrator runs the statements of `ddl`.
"""

import uuid
from collections.abc import Iterator

from sqlalchemy import Column, Connection, Dialect, Table, insert, inspect, select, update
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateTable

from oncelog.core.effect_errors import StoreSchemaTooNew, StoreSchemaTooOld
from oncelog.core.errors import InvalidArgument
from oncelog_effects.sql_tables import READS_FROM, SCHEMA_VERSION, EffectsTables

DIALECTS = ("postgresql", "sqlite")


def prepare(connection: Connection, tables: EffectsTables, *, create: bool) -> None:
    """Make the store usable: the tables, if `create`, and the row that says who the store is.

    Raises StoreSchemaTooNew, StoreSchemaTooOld.
    """
    if create:
        tables.metadata.create_all(connection)
    meta = tables.meta.c
    row = connection.execute(select(meta.schema_version, meta.reads_from)).one_or_none()
    if row is None:
        values = {"schema_version": SCHEMA_VERSION, "reads_from": READS_FROM, "store_id": uuid.uuid4().hex}
        connection.execute(insert(tables.meta).values(one=1, **values))
    elif row.reads_from > SCHEMA_VERSION:
        raise StoreSchemaTooNew(
            f"the tables have schema version {row.schema_version}, which needs a library that reads version "
            f"{row.reads_from}; this one reads {SCHEMA_VERSION}: upgrade oncelog"
        )
    elif row.schema_version < SCHEMA_VERSION:
        if not create:
            raise StoreSchemaTooOld(
                f"the tables have schema version {row.schema_version}, and this library needs {SCHEMA_VERSION}: run "
                f"the statements of `oncelog effects ddl --from-version {row.schema_version}`"
            )
        migrate(connection, tables)


def migrate(connection: Connection, tables: EffectsTables) -> None:
    """Add what is missing. Several programs may do so at once."""
    meta = tables.meta.c
    before: int = connection.execute(select(meta.schema_version).with_for_update()).scalar_one()
    if before >= SCHEMA_VERSION:
        return
    tables.metadata.create_all(connection)
    for table in tables.metadata.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}
        for column in table.columns:
            if column.name not in there:
                connection.exec_driver_sql(_addition(column, connection.dialect))
    connection.execute(update(tables.meta).values(schema_version=SCHEMA_VERSION, reads_from=READS_FROM))


def ddl(tables: EffectsTables, dialect_name: str, *, from_version: int = 0) -> list[str]:
    """The statements that create the tables, or that bring those of from_version to this version; for administrators
    who let no program change a schema. The first program inserts the row of `meta`. Raises InvalidArgument."""
    if not 0 <= from_version <= SCHEMA_VERSION:
        message = f"the tables have versions 0 to {SCHEMA_VERSION}, 0 for none, and not {from_version}"
        raise InvalidArgument(message, field="from_version", limit=SCHEMA_VERSION)
    dialect: Dialect = registry.load(dialect_name)()
    statements = list(_statements(tables, dialect, from_version))
    if 0 < from_version < SCHEMA_VERSION:
        change = update(tables.meta).values(schema_version=SCHEMA_VERSION, reads_from=READS_FROM)
        statements.append(str(change.compile(dialect=dialect, compile_kwargs={"literal_binds": True})))
    return statements


def _statements(tables: EffectsTables, dialect: Dialect, from_version: int) -> Iterator[str]:
    for table in tables.metadata.sorted_tables:
        if since(table) > from_version:
            yield str(CreateTable(table).compile(dialect=dialect)).strip()
            continue
        for column in table.columns:
            if since(column) > from_version:
                yield _addition(column, dialect)


def _addition(column: Column[object], dialect: Dialect) -> str:
    table = dialect.identifier_preparer.format_table(column.table)
    specification = dialect.ddl_compiler(dialect, None).get_column_specification(column)  # type: ignore[arg-type]
    return f"ALTER TABLE {table} ADD COLUMN {specification}"


def since(item: Table | Column[object]) -> int:
    return int(item.info.get("since", 1))
