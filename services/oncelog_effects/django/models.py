"""The outbox as a model, for queries and for Django's administration. Insert with `publish`, which checks a row.

The table is that of `oncelog_effects.outbox`, whatever creates it; its other columns are the relay's.
"""

from typing import Any

from django.db import models
from django.db.models.functions import Now

from oncelog_effects.outbox.tables import TABLE


class EventIdField(models.UUIDField):  # type: ignore[misc]  # Django has no types
    """A UUID, in SQLite as text with hyphens: as other programs write it."""

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        found = self.to_python(value)
        return found if found is None or connection.features.has_native_uuid_field else str(found)


class OutboxRow(models.Model):  # type: ignore[misc]
    """A message that waits for the relay. refused: why it can never be sent; None: it can."""

    id = models.BigAutoField(primary_key=True)
    event_id = EventIdField(unique=True)
    topic = models.CharField(max_length=800)
    message_key = models.BinaryField(null=True)
    value = models.BinaryField()
    properties = models.JSONField(null=True)
    event_time_ms = models.BigIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    refused = models.TextField(null=True, editable=False)

    class Meta:
        app_label = "oncelog"
        db_table = TABLE
        ordering = ("id",)
        verbose_name = "outbox row"

    def __str__(self) -> str:
        return f"{self.event_id} for {self.topic}"
