"""`publish`: a row of the outbox in the transaction of Django."""

import uuid
from collections.abc import Mapping

from django.db import DEFAULT_DB_ALIAS, connections

from oncelog.client.producing.message_arguments import Key
from oncelog.client.values.arguments import check_type
from oncelog.core.formats.batch import Buffer
from oncelog.core.outbox_errors import OutboxMisuse
from oncelog_effects.outbox.publishing import row_of


def publish(
    topic: str,
    value: Buffer,
    *,
    key: Key | None = None,
    properties: Mapping[str, str] | None = None,
    event_id: uuid.UUID | None = None,
    event_time_ms: int | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> uuid.UUID:
    """Insert a message into the outbox, in the transaction that is open: it is sent if the transaction is committed.

    Args:
        topic, value, key, properties, event_id, event_time_ms: as in `oncelog_effects.outbox.publish`.
        using: the database, as in Django's `transaction.atomic`: the one that the application's own changes go to.

    Returns the event id. Raises OutboxMisuse outside of `transaction.atomic`, InvalidName, InvalidArgument,
    MessageTooLarge, and what Django raises.
    """
    # Models can be imported only when the applications of the project are loaded.
    from oncelog_effects.django.models import OutboxRow

    check_type("event_id", event_id, (uuid.UUID, type(None)), "a UUID")
    identity = uuid.uuid4() if event_id is None else event_id
    row = row_of(topic, value, key, properties, identity, event_time_ms)
    if not connections[using].in_atomic_block:
        raise OutboxMisuse(
            "publish needs an open transaction, in which the application's own changes are: use "
            f"`with transaction.atomic(using={using!r}):`"
        )
    OutboxRow.objects.using(using).create(**row)
    return identity
