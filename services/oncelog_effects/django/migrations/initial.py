"""Creates the tables of the outbox, with the statements of `oncelog relay ddl`: so they are the same with and without
Django. Tables that a relay has created already stay as they are."""

from typing import Any

from django.db import migrations, models
from django.db.models.functions import Now

from oncelog_effects.django.models import EventIdField
from oncelog_effects.outbox.tables import TABLE, OutboxTables, ddl_of

_VENDORS = ("postgresql", "sqlite")


def create(_apps: Any, editor: Any) -> None:
    connection = editor.connection
    if connection.vendor not in _VENDORS:
        message = f"the outbox needs PostgreSQL or SQLite, not {connection.vendor}: migrate it in another database"
        raise NotImplementedError(message)
    with connection.cursor() as cursor:
        if TABLE in connection.introspection.table_names(cursor):
            return
    for statement in ddl_of(OutboxTables(), connection.vendor).split(";"):
        if statement.strip():
            editor.execute(statement, params=None)


def drop(_apps: Any, editor: Any) -> None:
    for table in reversed(OutboxTables().metadata.sorted_tables):
        editor.execute(f"DROP TABLE {editor.quote_name(table.name)}")


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """The first one."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012  # as Django declares it
    operations = [  # noqa: RUF012
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(create, drop)],
            state_operations=[
                migrations.CreateModel(
                    name="OutboxRow",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("event_id", EventIdField(unique=True)),
                        ("topic", models.CharField(max_length=800)),
                        ("message_key", models.BinaryField(null=True)),
                        ("value", models.BinaryField()),
                        ("properties", models.JSONField(null=True)),
                        ("event_time_ms", models.BigIntegerField(null=True)),
                        ("created_at", models.DateTimeField(db_default=Now())),
                        ("refused", models.TextField(editable=False, null=True)),
                    ],
                    options={"db_table": TABLE, "ordering": ("id",), "verbose_name": "outbox row"},
                )
            ],
        )
    ]
