"""Processes that fork, such as Celery's prefork workers, `gunicorn --preload` and multiprocessing.

A forked child has the memory of its parent, but only the thread that forked. What waits for another thread waits for
ever, and what closes a connection of the parent disturbs the parent, because both processes share its sockets.

Rules
- gRPC's own fork handlers are off: they end children with SIGSEGV or SIGABRT, also those that never use gRPC. The
  user's own setting of GRPC_ENABLE_FORK_SUPPORT wins. Where gRPC was imported first, it has read the setting before:
  `rpc.library` loads a copy of its own, which nobody else uses.
- `when_forked`: what the parent opened is told in the child, so that its methods raise ClientForked there. It costs
  nothing before a fork.
- `keep`: gRPC's objects of the parent are never finalized in the child, because that would end their connections.
- A child that needs gRPC loads a copy of its own, too.
"""

import os
import sys
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

#: the module that holds the library
GRPC_CORE = "grpc._cython.cygrpc"
_SETTING = "GRPC_ENABLE_FORK_SUPPORT"
#: whether gRPC, which reads the setting when it is imported, was imported before
GRPC_CAME_FIRST = GRPC_CORE in sys.modules and _SETTING not in os.environ
os.environ.setdefault(_SETTING, "false")


class Inherited(Protocol):
    """An object of the parent process that its child must not use."""

    def forked(self) -> None:
        """Called in the child, before anything else of it runs: raise ClientForked from now on. It must not wait, and
        not touch gRPC or an event loop."""


_told: "WeakSet[Inherited]" = WeakSet()
_kept: "WeakSet[object]" = WeakSet()


class _State:
    """Of this process."""

    #: whether gRPC was loaded before the fork, and was not replaced since
    grpc = False


_state = _State()


def when_forked(inherited: Inherited) -> None:
    """Call its `forked` in each child that is forked while it exists."""
    _told.add(inherited)


def keep(used: object) -> None:
    """Never finalize it in a child that is forked while it exists."""
    _kept.add(used)


def keep_for_ever(used: object) -> None:
    """Never finalize it in this process: one reference more than there are."""
    import ctypes  # programs that never fork do without it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))


def grpc_is_inherited() -> bool:
    """Whether gRPC was loaded before this process was forked, and was not replaced since."""
    return _state.grpc


def grpc_is_own() -> None:
    """gRPC of this process is its own: it has loaded it again, or its parent had loaded and never used it."""
    _state.grpc = False


def _in_child() -> None:
    if GRPC_CORE in sys.modules:
        _state.grpc = True
    for used in list(_kept):
        keep_for_ever(used)
    for inherited in list(_told):
        inherited.forked()


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)  # not on Windows
if _register is not None:
    _register(after_in_child=_in_child)
