"""`oncelog relay` with a database and no cluster."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog_effects.outbox.database import OutboxDatabase
from oncelog_effects.outbox.tables import OutboxTables


def relay(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["relay", *words], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result.stdout or result.stderr


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An outbox with two rows that wait and one that was refused."""

    async def create() -> None:
        database = OutboxDatabase(f"sqlite:///{tmp_path}/shop.db", OutboxTables())
        await database.connect()
        await database.close()

    asyncio.run(create())
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        for topic, refused in (("orders", "NULL"), ("orders", "NULL"), ("bad name", "'no topic'")):
            row = f"INSERT INTO oncelog_outbox (topic, value, refused) VALUES ('{topic}', x'61', {refused})"
            connection.execute(text(row))
    engine.dispose()
    return f"sqlite:///{tmp_path}/shop.db"


def test_status_shows_refused_and_waiting_rows(url: str) -> None:
    """And where the reason is that rows wait."""
    shown = relay("status", "--database", url)
    assert "refused: row 3: no topic" in shown
    assert "waiting: 2 for orders" in shown
    assert "the log of the relay that ran last" in shown
    assert '"waiting_topics": {"orders": 2}' in relay("status", "--database", url, "-o", "json")


def test_missing_file_directory_or_table_is_a_clear_end(tmp_path: Path) -> None:
    """Nothing is created, and nothing is tried for ever."""
    file = tmp_path / "no.db"
    assert f"there is no database file {file}" in relay("status", "--database", f"sqlite:///{file}", code=1)
    assert not file.exists()
    nowhere = f"sqlite:///{tmp_path}/nodir/x.db"
    assert "there is no directory" in relay("run", "--database", nowhere, "--url", "oncelog://127.0.0.1:1", code=1)
    file.touch()
    shown = relay("status", "--database", f"sqlite:///{file}", code=1)
    assert "has no table oncelog_outbox" in shown
    assert "`oncelog relay ddl` prints the statements" in shown
