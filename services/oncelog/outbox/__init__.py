"""The outbox: messages that are published if, and only if, a transaction of the application's database is committed.

    from oncelog import outbox

    with engine.begin() as connection:
        connection.execute(insert(orders).values(...))
        outbox.publish(connection, "orders", value, key=...)

`oncelog relay` sends the rows. It needs the extra `sql`: SQLAlchemy, and a driver for the database.
"""

from oncelog.outbox.publishing import publish
from oncelog.outbox.tables import OutboxTables

__all__ = ["OutboxTables", "publish"]
