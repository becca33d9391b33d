"""What operators see and change of a store of effects in a real database."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotFound, StoreMismatch, StoreUnavailable
from oncelog_effects.core.effects.ordered import StoredPosition
from oncelog_effects.sql_admin import SqlAdmin, schema_is_old
from oncelog_effects.store import ClaimLost
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at
from tests.effects.contract.sql_database import Database
from tests.effects.contract.test_sql_schema import of_version_1
from tests.tidy.documents import fenced, text_of

pytestmark = pytest.mark.asyncio


def admin_of(database: Database) -> SqlAdmin:
    """Operators use a synchronous driver."""
    url = database.engine.url.set(drivername="postgresql+psycopg" if database.is_postgres else "sqlite")
    return SqlAdmin(url.render_as_string(hide_password=False))


async def in_thread(work: Any, *arguments: Any) -> Any:
    """The command line has no event loop of its own."""
    return await asyncio.to_thread(work, *arguments)


async def test_view_shows_the_store_and_changes_nothing(database: Database) -> None:
    """Nor does it create anything, also in a store of an older version."""
    admin = admin_of(database)
    with pytest.raises(NotFound, match="no program with effects has used it"):
        await in_thread(admin.view)
    await of_version_1(database)
    view = await in_thread(admin.view)
    assert (view.store_id, view.schema_version, schema_is_old(view)) == ("5a" * 16, 1, True)
    assert [(row.source, row.names.cluster_id, row.stored.position) for row in view.rows] == [(SOURCE, "", 7)]
    effects = database.effects()
    await effects.store_id()
    await effects.claim(SOURCE, NAMES._replace(cluster_id="c7"), lambda _: FIRST)
    await effects.apply(SOURCE, at(0), at(2), database.function("INSERT INTO invoices VALUES (0), (1)"))
    (row,) = (await in_thread(admin.view)).rows
    assert (row.names.cluster_id, row.stored, row.applied) == ("c7", at(2), 1)
    assert row.updated_ms > 1_700_000_000_000
    admin.close()


@pytest.mark.hazard("store-replaced-while-running")
async def test_store_id_of_its_own_ends_the_programs_on_a_copy(database: Database) -> None:
    """By the statements of the documents, at once: what they would apply has no claim. The positions stay."""
    effects, admin = database.effects(), admin_of(database)
    before = await effects.store_id()
    await effects.claim(SOURCE, NAMES, lambda _: FIRST)
    for statement in documented(f"a store id of its own, {'PostgreSQL' if database.is_postgres else 'SQLite'}"):
        await database.run(statement)
    now = (await in_thread(admin.view)).store_id
    assert (now != before, len(now)) == (True, 32)
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, at(0), at(1), database.function("INSERT INTO invoices VALUES (1)"))
    with pytest.raises(StoreMismatch, match=now):
        await effects.claim(SOURCE, NAMES, lambda _: FIRST)
    assert await database.invoices() == []
    view = await in_thread(admin.view)
    assert (view.store_id, view.rows[0].stored.position) == (now, 0)
    admin.close()


async def test_operator_writes_a_row_and_voids_the_claim(database: Database) -> None:
    effects, admin = database.effects(), admin_of(database)
    await effects.store_id()
    await effects.claim(SOURCE, NAMES, lambda _: FIRST)
    found: list[StoredPosition | None] = []

    def decide(row: StoredPosition | None) -> StoredPosition:
        found.append(row)
        return replace(at(9), claim="0b" * 16)

    await in_thread(admin.put, SOURCE, NAMES, decide)
    assert found == [FIRST]
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, at(0), at(1), None)
    admin.close()


async def test_rows_of_a_deleted_topic_are_deleted_by_its_id(database: Database) -> None:
    """By the statement of the documents."""
    effects, admin = database.effects(), admin_of(database)
    await effects.store_id()
    for topic_id in (SOURCE.topic_id, "ee" * 16):
        await effects.claim(SOURCE._replace(topic_id=topic_id), NAMES, lambda _: FIRST)
    (statement,) = documented("rows of a deleted topic")
    await database.run(statement.replace("TOPIC_ID", "ee" * 16))
    assert [row.source.topic_id for row in (await in_thread(admin.view)).rows] == [SOURCE.topic_id]
    admin.close()


def documented(title: str) -> list[str]:
    """The statements of docs/effects.md below this comment; each runs in a transaction of its own here."""
    (block,) = [block for block in fenced(text_of("docs/effects.md"), "sql") if block.startswith(f"-- {title}\n")]
    statements = [line.strip() for line in block.partition("\n")[2].split(";")]
    return [statement for statement in statements if statement not in ("", "BEGIN", "COMMIT")]


async def test_database_that_cannot_be_used_is_told(tmp_path: Any) -> None:
    """Without its password, and without creating a file."""
    for url, error in (
        ("shop", InvalidArgument),
        ("mysql://u:secret@h/x", InvalidArgument),
        (f"sqlite+aiosqlite:///{tmp_path}/x.db", InvalidArgument),
        ("postgresql+nothing://u:secret@h/x", InvalidArgument),
        (f"sqlite:///{tmp_path}/x.db", NotFound),
        ("sqlite://", NotFound),
    ):
        with pytest.raises(error) as raised:
            SqlAdmin(url)
        assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("this is no database file\n" * 100)
    with pytest.raises(StoreUnavailable) as unreadable:
        await in_thread(SqlAdmin(f"sqlite:///{tmp_path}/text.db").view)
    assert str(unreadable.value) == f"sqlite:///{tmp_path}/text.db: file is not a database"
