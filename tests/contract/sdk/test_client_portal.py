"""The event loop below the synchronous SDK: late callbacks, unfinished tasks and forks."""

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading

import pytest

from oncelog.client.portal import Portal
from oncelog.core.errors import ClientClosed

DEADLINE_S = 30.0


async def own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_callback_for_a_stopped_loop_runs_later_without_an_error() -> None:
    """gRPC's poller, which all loops share, hands over the end of a call when its client is gone already: that was
    "Event loop is closed" in the log of the next client, amid its own events."""
    first = Portal()
    loop = first.run(own_loop())
    first.stop()
    done = threading.Event()
    loop.call_soon_threadsafe(done.set)
    second = Portal()
    assert second.run(own_loop()) is loop
    assert done.wait(DEADLINE_S)
    second.stop()


def test_concurrent_portals_have_separate_loops() -> None:
    """Only a loop that no portal runs is reused."""
    portals = [Portal() for _ in range(3)]
    assert len({id(portal.run(own_loop())) for portal in portals}) == 3
    for portal in portals:
        portal.stop()


def test_unfinished_tasks_are_cancelled_when_a_portal_ends() -> None:
    """Otherwise their callers wait forever, and the next client's loop would run tasks of a closed client."""
    portal = Portal()
    waiting = portal.submit(asyncio.Event().wait())
    portal.stop()
    with pytest.raises(concurrent.futures.CancelledError):
        waiting.result(DEADLINE_S)

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    following = Portal()
    assert following.run(tasks()) == 1
    following.stop()


def test_call_that_waits_at_the_end_gets_the_clients_error() -> None:
    """It was not cancelled: another thread has closed the client."""
    portal, begun, errors = Portal(), threading.Event(), list[BaseException]()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.run(waits())
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test looks at it
            errors.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    assert begun.wait(DEADLINE_S)
    portal.stop()
    calling.join(DEADLINE_S)
    assert [type(error) for error in errors] == [ClientClosed]


def test_call_after_the_end_is_refused() -> None:
    """A loop that does not run would never answer it."""
    portal = Portal()
    portal.stop()
    portal.stop()
    assert not portal.alive
    with pytest.raises(ClientClosed):
        portal.run(own_loop())


def test_work_is_not_dropped_with_its_future() -> None:
    """An event loop keeps no task: one that only its own future refers to is collected while it waits."""
    cancelled = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    portal = Portal()
    portal.submit(waits())
    portal.run(own_loop())  # so that it has begun
    gc.collect()
    portal.stop()
    assert cancelled.is_set()


def test_call_during_the_end_is_refused() -> None:
    """Its task would stay on the loop, and its caller would wait until another client is created."""
    ending, release = threading.Event(), threading.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.to_thread(release.wait, DEADLINE_S)

    portal = Portal()
    portal.submit(stubborn())
    portal.run(own_loop())  # so that the other has begun
    stopping = threading.Thread(target=portal.stop)
    stopping.start()
    assert ending.wait(DEADLINE_S)
    with pytest.raises(ClientClosed):
        portal.submit(own_loop())
    release.set()
    stopping.join(DEADLINE_S)
    assert not portal.alive


_FORKED = """
import asyncio, os
from oncelog.client.portal import Portal
async def own_loop(): return asyncio.get_running_loop()
portal = Portal(); before = portal.run(own_loop()); portal.stop()
child = os.fork()
if not child:
    own = Portal()
    other = own.run(own_loop()) is not before
    own.stop()
    os._exit(0 if other else 9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
again = Portal()
assert again.run(own_loop()) is before
again.stop()
"""


def test_forked_child_does_not_use_loops_of_its_parent() -> None:
    """Both processes would wait on the same descriptors and take each other's events."""
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)
