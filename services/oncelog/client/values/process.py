"""Errors of a client that another process, or another event loop, has made."""

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
