"""How commands of the lab run: one event loop, gRPC quiet, an error as one sentence on standard error."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TypeVar

import typer

T = TypeVar("T")


def quiet_grpc() -> None:
    """Call it before gRPC is imported: by default it reports every connection that ends."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def run_lab(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run it on an event loop of its own. An error of Oncelog ends the program with exit code 1, Ctrl-C with 130."""
    import uvloop

    from oncelog.core.errors import OncelogError

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except OncelogError as error:
        raise failed(error) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


def failed(error: Exception) -> typer.Exit:
    """Print the error; returns the exit to raise."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    return typer.Exit(1)
