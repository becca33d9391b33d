"""The outbox: messages that are published if, and only if, a transaction of the application's database is committed.

    from oncelog_effects import outbox

    with engine.begin() as connection:
        connection.execute(insert(orders).values(...))
        outbox.publish(connection, "orders", value, key=...)

`oncelog relay` sends the rows. It needs this distribution's extra `sql`: SQLAlchemy, and a driver for the database.
"""

from oncelog_effects.outbox.publishing import publish
from oncelog_effects.outbox.tables import OutboxTables

__all__ = ["OutboxTables", "publish"]
