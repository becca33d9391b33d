"""Who receives the result of a single message: a future, or a callback of the application."""

import asyncio
from collections.abc import Callable

from oncelog.client.values.results import SendResult
from oncelog.core.errors import OncelogError

#: Called once, with a result or with an error.
SendCallback = Callable[[SendResult | None, OncelogError | None], None]
SendReceiver = asyncio.Future[SendResult] | SendCallback


def fail(receiver: SendReceiver, error: OncelogError) -> None:
    if isinstance(receiver, asyncio.Future):
        if not receiver.done():
            receiver.set_exception(error)
        return
    try:
        receiver(None, error)
    except Exception as raised:  # noqa: BLE001  # the application's
        report(receiver, raised)


def report(callback: SendCallback, error: Exception) -> None:
    """Give what a callback has raised to the event loop's exception handler, as asyncio does for callbacks of futures.
    The other messages get their results."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"the callback {callback!r} of a message failed", "exception": error}
    )
