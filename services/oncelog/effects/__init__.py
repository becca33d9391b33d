"""Effects that happen once: functions whose writes to a store are committed together with their position in the log.

    from oncelog.effects import SqlEffects

    @oncelog.process("orders", subscription="billing", effects=SqlEffects(engine))
    def book(message, connection): ...

    oncelog.run(book)

`TopicEffects` has its effects in other topics. SqlEffects needs the extra `sql`: SQLAlchemy, and a driver for the
database.
"""

from typing import TYPE_CHECKING

from oncelog.effects.process import Process, process, run
from oncelog.effects.topic_store import Output, TopicEffects

if TYPE_CHECKING:
    from oncelog.effects.sql_store import SqlEffects

__all__ = ["Output", "Process", "SqlEffects", "TopicEffects", "process", "run"]


def __getattr__(name: str) -> object:
    if name != "SqlEffects":
        raise AttributeError(f"module 'oncelog.effects' has no attribute {name!r}")
    try:
        from oncelog.effects.sql_store import SqlEffects
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("sqlalchemy", "greenlet"):
            raise
        raise ModuleNotFoundError(
            "SqlEffects needs SQLAlchemy: install Oncelog with its extra sql, or sqlalchemy itself", name=error.name
        ) from error
    return SqlEffects
