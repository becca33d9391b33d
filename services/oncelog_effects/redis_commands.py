"""What a function of `RedisEffects` gets, and which commands may be in an effect."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis import ConnectionPool
from redis.client import Pipeline
from redis.exceptions import RedisError

from oncelog.core.effect_errors import EffectMisuse

COMMANDS_MAX = 1_000
#: Lua's `unpack` fails at about 8,000.
WORDS_MAX = 4_000
BYTES_MAX = 64 << 20
#: They would take the position with them, or act elsewhere.
_REFUSED = {b"FLUSHALL", b"FLUSHDB", b"SWAPDB", b"SELECT", b"MIGRATE", b"FCALL"}
#: Without the flag that says so. Functions and scripts are none: after an error a part of them has taken effect.
_WRITES = {"publish", "spublish", "xgroup"}
#: One connection pool that is never used: a pipeline wants one.
_NEVER_USED = ConnectionPool()

Command = tuple[bytes, ...]


class EffectPipeline(Pipeline):
    """A pipeline of redis-py that collects commands; they run together with the position when the function returns.

    Reading gives nothing: the commands have not run yet.
    """

    def __init__(self) -> None:
        super().__init__(_NEVER_USED, {}, False, None)
        self.ended = False

    def pipeline_execute_command(self, *args: Any, **options: Any) -> Pipeline:
        if self.ended:
            raise EffectMisuse("the function has ended: its commands must be given before it returns")
        if len(self.command_stack) >= COMMANDS_MAX:
            raise EffectMisuse(f"an effect has at most {COMMANDS_MAX} commands")
        return super().pipeline_execute_command(*args, **options)

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        raise EffectMisuse(f"the function cannot use {args[0]}: its commands run when it returns")

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        raise EffectMisuse("the function must not execute its commands: they run when it returns")

    def multi(self) -> None:
        raise EffectMisuse("the function must not begin a transaction: its commands are one")


def commands_of(pipeline: EffectPipeline, encode: Callable[[Any], Any], known: Mapping[str, Any]) -> list[Command]:
    """The commands as the server gets them. known: what the server says of each command. Raises EffectMisuse: what can
    be refused now does not fail behind others."""
    pipeline.ended = True
    found: list[Command] = []
    for args, _ in pipeline.command_stack:
        try:
            words = [bytes(encode(each)) for each in args]
        except RedisError as error:
            raise EffectMisuse(f"command {args[0]}: {error}") from error
        name = words[0].split()  # redis-py gives the names of two words as one
        found.append((*name, *words[1:]))
        _check(found[-1], known)
    size = sum(len(word) for command in found for word in command)
    if size > BYTES_MAX:
        raise EffectMisuse(f"the commands of an effect have at most {BYTES_MAX} bytes, these have {size}")
    return found


def _check(command: Command, known: Mapping[str, Any]) -> None:
    name = command[0].decode(errors="replace").lower()
    about = known.get(name)
    if about is None:
        raise EffectMisuse(f"the server has no command {name}")
    arity, flags = about["arity"], set(about["flags"])
    if command[0].upper() in _REFUSED or flags & {"noscript", "admin", "blocking", "pubsub"}:
        raise EffectMisuse(f"command {name} cannot be a part of an effect")
    if "write" not in flags and name not in _WRITES:
        raise EffectMisuse(
            f"command {name} writes nothing: the commands of an effect run when the function has ended, so none can be "
            "read. Read with a client of your own what no effect changes"
        )
    if len(command) != arity if arity > 0 else len(command) < -arity:
        raise EffectMisuse(f"wrong number of arguments for command {name}")
    if len(command) > WORDS_MAX:
        raise EffectMisuse(f"command {name} has {len(command)} words, and at most {WORDS_MAX} are possible: split it")


def words_of(commands: Sequence[Command]) -> list[bytes]:
    """For the script: of each command the number of its words, and its words."""
    return [word for command in commands for word in (b"%d" % len(command), *command)]
