"""Effects that happen once: functions whose writes to a store are committed together with their position in the log.

    from oncelog_effects import SqlEffects

    @oncelog.process("orders", subscription="billing", effects=SqlEffects(engine))
    def book(message, connection): ...

    oncelog.run(book)

Stores: SqlEffects (extra `sql`: SQLAlchemy, and a driver for the database), TopicEffects, FileEffects
and RedisEffects (extra `redis`: redis-py).

The names are loaded when first used: an application that imports the outbox needs no SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog_effects.file_store import FileAppend, FileEffects
    from oncelog_effects.processes import Process, process
    from oncelog_effects.programs.batches import batches
    from oncelog_effects.programs.program import run
    from oncelog_effects.redis_store import RedisEffects
    from oncelog_effects.sql_store import SqlEffects
    from oncelog_effects.topic_store import Output, TopicEffects

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
_LAZY = {
    "FileAppend": "oncelog_effects.file_store",
    "FileEffects": "oncelog_effects.file_store",
    "Output": "oncelog_effects.topic_store",
    "Process": "oncelog_effects.processes",
    "RedisEffects": "oncelog_effects.redis_store",
    "SqlEffects": "oncelog_effects.sql_store",
    "TopicEffects": "oncelog_effects.topic_store",
    "batches": "oncelog_effects.programs.batches",
    "process": "oncelog_effects.processes",
    "run": "oncelog_effects.programs.program",
}
#: {package that a store needs: the extra, and its name}
_EXTRAS = {
    "greenlet": ("sql", "SQLAlchemy"),
    "redis": ("redis", "redis-py"),
    "sqlalchemy": ("sql", "SQLAlchemy"),
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'oncelog_effects' has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra, title = _EXTRAS[package]
        raise ModuleNotFoundError(
            f"{name} needs {title}: install oncelog_effects with its extra {extra}, or {package} itself",
            name=error.name,
        ) from error
