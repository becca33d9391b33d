"""Where an asyncio task stands, for the report of a test that hangs or leaves work behind."""

import asyncio
import gc
from collections.abc import Iterator
from types import FrameType
from typing import Any


def story_of(task: "asyncio.Task[Any]") -> str:
    """The name of the task, the function that it runs, and one line for each call in which it waits.

    `Task.print_stack` shows the outermost call only, which is seldom the one that waits.
    """
    frames = list(_frames(task.get_coro()))
    head = getattr(task.get_coro(), "__qualname__", repr(task.get_coro()))
    lines = [f"  {each.f_code.co_filename}:{each.f_lineno} in {each.f_code.co_qualname}" for each in frames]
    return "\n".join([f"task {task.get_name()} runs {head}", *(lines or ["  it has not begun"])])


def running_loops() -> list[asyncio.AbstractEventLoop]:
    """Every event loop of this process that runs, in whichever thread."""
    loops = [each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop)]
    return [each for each in loops if each.is_running()]


def _frames(awaited: object) -> Iterator[FrameType]:
    """Of coroutines and generators, from the outermost to the one that waits."""
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            if hasattr(awaited, f"{kind}_frame"):
                break
        else:
            return
        frame = getattr(awaited, f"{kind}_frame")
        if frame is None:
            return
        yield frame
        awaited = getattr(awaited, f"{kind}_yieldfrom" if kind == "gi" else f"{kind}_await", None)
