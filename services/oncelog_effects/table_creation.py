"""Tables that several programs create at once: a shop and its relay begin together.

PostgreSQL checks for a table and creates it in two steps, also with `IF NOT EXISTS`; of two transactions that do so at
once, one fails. So they take turns. In a transaction of a higher isolation than READ COMMITTED the second one fails all
the same, because it does not see what the first one has committed meanwhile.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, Table, text

#: Of PostgreSQL's advisory locks, whose numbers all programs of a database share: "oncelog" in ASCII.
LOCK = 0x6F6E63656C6F67


class SharedMetaData(MetaData):
    """`create_all` of two programs at once creates the tables once."""

    def create_all(self, bind: Any, tables: Sequence[Table] | None = None, checkfirst: Any = True) -> None:
        """bind: an Engine or a Connection; the lock is held until its transaction ends."""
        if isinstance(bind, Engine):
            with bind.begin() as connection:
                self.create_all(connection, tables, checkfirst)
            return
        if isinstance(bind, Connection) and bind.dialect.name == "postgresql":
            bind.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        super().create_all(bind, tables, checkfirst)
