"""Effects that happen once: functions whose writes to a store are committed together with their position in the log.

    from oncelog.effects import SqlEffects

    @oncelog.process("orders", subscription="billing", effects=SqlEffects(engine))
    def book(message, connection): ...

    oncelog.run(book, url="oncelog://127.0.0.1:6650")

Needs the extra `sql`: SQLAlchemy, and a driver for the database.
"""

from oncelog.effects.process import Process, process, run
from oncelog.effects.sql_store import SqlEffects

__all__ = ["Process", "SqlEffects", "process", "run"]
