"""Effects that happen once: functions whose writes to a store are committed together with their position in the log.

    from oncelog.effects import SqlEffects

    @oncelog.process("orders", subscription="billing", effects=SqlEffects(engine))
    def book(message, connection): ...

    oncelog.run(book)

Stores: SqlEffects (extra `sql`: SQLAlchemy, and a driver for the database), TopicEffects, FileEffects
and RedisEffects (extra `redis`: redis-py).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog.effects.process import Process, process
from oncelog.effects.programs.batches import batches
from oncelog.effects.programs.program import run
from oncelog.effects.topic_store import Output, TopicEffects

if TYPE_CHECKING:
    from oncelog.effects.file_store import FileAppend, FileEffects
    from oncelog.effects.redis_store import RedisEffects
    from oncelog.effects.sql_store import SqlEffects

__all__ = [
    "FileAppend",
    "FileEffects",
    "Output",
    "Process",
    "RedisEffects",
    "SqlEffects",
    "TopicEffects",
    "batches",
    "process",
    "run",
]

#: {name: its module}
_STORES = {
    "FileAppend": "oncelog.effects.file_store",
    "FileEffects": "oncelog.effects.file_store",
    "RedisEffects": "oncelog.effects.redis_store",
    "SqlEffects": "oncelog.effects.sql_store",
}
#: {package that a store needs: the extra, and its name}
_EXTRAS = {
    "greenlet": ("sql", "SQLAlchemy"),
    "redis": ("redis", "redis-py"),
    "sqlalchemy": ("sql", "SQLAlchemy"),
}


def __getattr__(name: str) -> object:
    if name not in _STORES:
        raise AttributeError(f"module 'oncelog.effects' has no attribute {name!r}")
    try:
        return getattr(import_module(_STORES[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra, title = _EXTRAS[package]
        raise ModuleNotFoundError(
            f"{name} needs {title}: install Oncelog with its extra {extra}, or {package} itself", name=error.name
        ) from error
