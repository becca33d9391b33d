"""`oncelog_effects.django`: the outbox in a project of Django, with the tables and the rows of every other program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine, make_url, select

from oncelog_effects.outbox.tables import OutboxTables
from tests.effects.postgres_process import PostgresProcess

#: A project of one file, which runs the commands and the transactions of its arguments.
PROJECT = """
import json, sys, uuid
import django
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.loader import MigrationLoader

settings.configure(
    INSTALLED_APPS=["oncelog_effects.django"], DATABASES={"default": json.loads(sys.argv[1])}, USE_TZ=True
)
django.setup()
from oncelog_effects.django import publish
from oncelog_effects.django.models import OutboxRow
from oncelog.errors import OutboxMisuse

if sys.argv[2] == "again":
    call_command("migrate", verbosity=0)  # the tables are there: made by a relay, and not known to Django
    print(OutboxRow.objects.count())
    sys.exit()
call_command("migrate", verbosity=0)
call_command("makemigrations", "--check", "--dry-run", verbosity=0)  # the models are those of the migration
print(type(apps.get_app_config("oncelog")).__module__)
print(MigrationLoader(connection).graph.nodes["oncelog", "initial"].__module__)
event_id = uuid.UUID(int=7)
with transaction.atomic():
    publish("orders", b"two teas", key="table-4", properties={"guest": "é"}, event_id=event_id,
            event_time_ms=1_935_360_000_000)
    publish("orders", b"\\x00\\xff")
try:
    with transaction.atomic():
        publish("orders", b"never")
        raise KeyError
except KeyError:
    pass
try:
    with transaction.atomic():
        publish("orders", b"again", event_id=event_id)
except IntegrityError:
    print("the repetition failed")
for wrong in (lambda: publish("orders", b"x"), lambda: publish("a b", b"x"), lambda: publish("orders", "text")):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__)
assert isinstance(OutboxRow.objects.get(event_id=event_id).event_id, uuid.UUID)
print([(bytes(row.value), row.properties, row.refused) for row in OutboxRow.objects.all()])
"""


def run(database: dict[str, object], what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROJECT, json.dumps(database), what],
        env=os.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    server: PostgresProcess = request.getfixturevalue("postgres")
    server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return server.url.replace("postgresql:", "postgresql+psycopg:")


def for_django(url: str) -> dict[str, object]:
    parts = make_url(url)
    options = {key.upper(): value for key, value in parts.query.items()}
    found = {
        "ENGINE": f"django.db.backends.{'sqlite3' if parts.drivername == 'sqlite' else 'postgresql'}",
        "NAME": parts.database,
        "USER": parts.username,
        "PASSWORD": parts.password,
        "HOST": parts.host or options.get("HOST"),
        "PORT": parts.port,
    }
    return {key: value for key, value in found.items() if value is not None}


def shape(url: str) -> dict[str, list[tuple[str, str, bool, bool]]]:
    """The columns of the outbox's tables, as the database has them."""
    engine, found = create_engine(url), MetaData()
    found.reflect(engine, only=list(OutboxTables().metadata.tables))
    engine.dispose()
    return {
        name: [
            (each.name, str(each.type), bool(each.nullable), each.server_default is not None) for each in table.columns
        ]
        for name, table in found.tables.items()
    }


def test_row_of_django_is_a_row_of_the_outbox(url: str) -> None:
    """In the transaction, checked, and as other programs and the relay read it; in the same tables, whoever creates
    them."""
    assert run(for_django(url), "first") == [
        "oncelog_effects.django.apps", "oncelog_effects.django.migrations.initial",
        "the repetition failed", "OutboxMisuse", "InvalidName", "InvalidArgument",
        "[(b'two teas', {'guest': 'é'}, None), (b'\\x00\\xff', None, None)]",
    ]  # fmt: skip
    engine, rows = create_engine(url), OutboxTables().rows
    with engine.connect() as connection:
        first, second = connection.execute(select(rows).order_by(rows.c.id)).mappings()
    engine.dispose()
    assert (first["topic"], bytes(first["message_key"]), bytes(first["value"])) == (
        "public/default/orders", b"table-4", b"two teas",
    )  # fmt: skip
    assert (first["event_id"], first["properties"], first["event_time_ms"]) == (
        "00000000-0000-0000-0000-000000000007", {"guest": "é"}, 1935360000000,
    )  # fmt: skip
    assert (second["properties"], second["message_key"], second["number"], second["refused"]) == (None,) * 4
    assert second["created_at"] is not None
    check_tables(url)


def check_tables(url: str) -> None:
    """The migration has created what a relay creates, and takes tables that a relay has created."""
    migrated = shape(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        OutboxTables().metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE django_migrations")
        OutboxTables().metadata.create_all(connection)
    engine.dispose()
    assert shape(url) == migrated
    assert len(migrated) == 3
    assert run(for_django(url), "again") == ["0"]
