"""Where a client cannot be used: in another process or event loop than its own, and where threads are no threads."""

import sys

from oncelog.core.errors import ClientForked


def used_after_fork() -> ClientForked:
    """The error of everything of the parent's client in a forked child."""
    return ClientForked(
        "the client, and what it has opened, belongs to the process that this one was forked from: create a client in "
        "this process"
    )


def not_to_be_sent() -> TypeError:
    """The error of pickling, as of other objects that cannot be pickled."""
    return TypeError(
        "a client, and what it has opened, cannot be given to another process: create a client there, from the same URL"
    )


def used_in_another_loop() -> RuntimeError:
    """The error of everything of a client in another event loop than its own: what it waits for would never wake it."""
    return RuntimeError(
        "the client, and what it has opened, belongs to the event loop in which it was made: use "
        "asyncio.run_coroutine_threadsafe with that loop, or create a client in this one"
    )


def check_threads() -> None:
    """Raises RuntimeError where gevent or eventlet has replaced Python's threads: gRPC's own threads could not wake an
    event loop, and it would wait for ever."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    patched = None
    if gevent is not None and gevent.is_module_patched("threading"):
        patched = "gevent", "gevent.monkey.patch_all()", "gevent.monkey.patch_all(thread=False)"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        patched = "eventlet", "eventlet.monkey_patch()", "eventlet.monkey_patch(thread=False)"
    if patched is not None:
        name, call, instead = patched
        raise RuntimeError(
            f"Oncelog's client does not work with the threads of {name}, which {call} has put in place of Python's: "
            f"use {instead}, or the client in a process of its own"
        )
