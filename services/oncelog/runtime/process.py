"""The life of a process: it runs one coroutine, drains on request, and ends with an error code after a failure.

sys.exit(run(main, drain_timeout_ms=10_000))      # async def main(shutdown: Shutdown) -> None

SIGTERM or SIGINT   `shutdown` is requested; main drains and returns; exit 0
a second signal     ends at once, exit 3, as does a drain that exceeds its timeout; SIGTERM for the death of the parent
                    (`orphan_guard`) is no second one, and Linux sends it once for each thread of the parent
main raises         a core error: exit 1 with its message; anything else: exit 70 with its trace
elsewhere           an unhandled error (in a task, a thread, a callback) and InvariantViolated: exit 70 at once.
                    A process in an unknown state must not acknowledge anything; a restart is cheap.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import uvloop

from oncelog.core.errors import InvalidArgument, InvariantViolated, OncelogError
from oncelog.runtime.descriptors import OUTPUT, discard_output, raise_limit, sentence_of
from oncelog.runtime.exception_groups import leaves_of
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.memory import tune_memory
from oncelog.runtime.settings import SettingsT, load

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: How the last line of the log begins when an error that names what to do has ended the process.
ENDS_BECAUSE = "the process ends because of an error: "

#: For this long after the first SIGTERM, further ones may be signals of the death of the parent.
ORPHANED_S = 1.0
#: So long after such a signal the parent is gone.
_PARENT_GONE_S = 0.2


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    DRAIN_TIMED_OUT = 3
    BUG = 70  # EX_SOFTWARE of sysexits.h


class Shutdown:
    """The request to end the process; `main` waits for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        #: "SIGTERM", "SIGINT" or the reason given to `request`; empty before a request.
        self.reason = ""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, reason: str) -> None:
        """Request the end; a second request changes nothing."""
        if not self.requested:
            self.reason = reason
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def or_result(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, a step of the start, or its error. None when the end is requested first: `work` is
        cancelled then, and the process must end."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            logger.info("start cancelled", extra={"fields": {"reason": self.reason}})
            return None
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait((working, stopping))


def end_now(code: ExitCode) -> NoReturn:
    """End without draining: everything that was acknowledged is durable."""
    try:
        for handler in logging.getLogger().handlers:
            handler.flush()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def load_settings(cls: type[SettingsT], arguments: Mapping[str, object]) -> SettingsT:
    """Read the settings of this process, from its arguments and environment, and set up its logs.

    Ends the process with one sentence when the settings are wrong.
    """
    try:
        settings = load(cls, os.environ, **arguments)
    except InvalidArgument as error:
        set_up_logs()
        _log_end(error.message, error.code)
        sys.exit(ExitCode.FAILED)
    set_up_logs(settings.log_level)
    return settings


def run(main: Callable[[Shutdown], Awaitable[None]], *, drain_timeout_ms: int) -> ExitCode:
    """Run `main` on a new uvloop until it returns. Returns the code to exit with."""
    faulthandler.enable()
    tune_memory()
    raise_limit()
    threading.excepthook = _thread_failed
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_supervised(main, drain_timeout_ms))
    except Exception as error:
        leaves = list(leaves_of(error))
        if all(isinstance(leaf, OSError) and leaf.filename == OUTPUT for leaf in leaves):
            discard_output()
            _log_end("; ".join(sentence_of(leaf) for leaf in leaves if isinstance(leaf, OSError)), "output")
            return ExitCode.FAILED
        if all(isinstance(leaf, OncelogError) and not isinstance(leaf, InvariantViolated) for leaf in leaves):
            trace = logger.isEnabledFor(logging.DEBUG)
            codes = ", ".join(dict.fromkeys(leaf.code for leaf in leaves if isinstance(leaf, OncelogError)))
            _log_end("; ".join(map(str, leaves)), codes, trace=trace)
            return ExitCode.FAILED
        logger.critical("the process failed because of a bug", exc_info=True)
        return ExitCode.BUG
    return ExitCode.OK


def _log_end(message: str, code: str, *, trace: bool = False) -> None:
    fields = {"fields": {"code": code}}
    logger.critical("%s%s", ENDS_BECAUSE, message, exc_info=trace, extra=fields)


async def _supervised(main: Callable[[Shutdown], Awaitable[None]], drain_timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_loop_failed)
    shutdown = Shutdown()
    parent, requested_s = os.getppid(), 0.0

    def stop(number: signal.Signals) -> None:
        nonlocal requested_s
        if not shutdown.requested:
            logger.info("draining", extra={"fields": {"signal": number.name, "drain_timeout_ms": drain_timeout_ms}})
            requested_s = loop.time()
            shutdown.request(number.name)
            loop.call_later(drain_timeout_ms / 1000, give_up)
        elif number is signal.SIGTERM and loop.time() - requested_s < ORPHANED_S:
            # The parent's threads end before it does, so it may still be there when the second signal arrives.
            loop.call_later(_PARENT_GONE_S, end_unless_orphaned, number)
        else:
            end_at_once(number)

    def end_unless_orphaned(number: signal.Signals) -> None:
        if os.getppid() == parent:
            end_at_once(number)
        logger.info("the parent process has ended, the drain goes on")

    def end_at_once(number: signal.Signals) -> None:
        logger.warning("a second signal ends the process without a drain", extra={"fields": {"signal": number.name}})
        end_now(ExitCode.DRAIN_TIMED_OUT)

    def give_up() -> None:
        logger.error("the drain exceeded its timeout", extra={"fields": {"drain_timeout_ms": drain_timeout_ms}})
        end_now(ExitCode.DRAIN_TIMED_OUT)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await main(shutdown)


def _loop_failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's exception handler: an unhandled error ends the process."""
    error, message = context.get("exception"), str(context.get("message", ""))
    fields = {"context": message}
    # gRPC does not retrieve all results of its own calls, and its poller may wake up without an event.
    of_grpc = type(error).__module__.split(".")[0] == "grpc" or "PollerCompletionQueue" in message
    if error is None or of_grpc:
        logger.warning("the event loop reported a problem", extra={"fields": fields}, exc_info=error)
        return
    logger.critical("unhandled error", extra={"fields": fields}, exc_info=error)
    end_now(ExitCode.BUG)


def _thread_failed(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is SystemExit or arguments.exc_value is None:
        return
    fields = {"thread": arguments.thread.name if arguments.thread else ""}
    logger.critical("a thread failed", extra={"fields": fields}, exc_info=arguments.exc_value)
    end_now(ExitCode.BUG)
