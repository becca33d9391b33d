"""The application of Django."""

from django.apps import AppConfig


class OncelogConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Its models are those of the outbox."""

    name = "oncelog_effects.django"
    label = "oncelog"
    verbose_name = "Oncelog"
    default_auto_field = "django.db.models.BigAutoField"
