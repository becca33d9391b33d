"""The outbox in a project of Django: messages that are published if, and only if, a transaction is committed.

    INSTALLED_APPS = [..., "oncelog_effects.django"]        and then: python manage.py migrate oncelog

    from django.db import transaction
    from oncelog_effects.django import publish

    with transaction.atomic():
        order.save()
        publish("orders", value, key=...)

`oncelog relay` sends the rows. It needs the extra `django`, with SQLite or PostgreSQL.
"""

from oncelog_effects.django.publishing import publish

__all__ = ["publish"]
