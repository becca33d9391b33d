"""The loop under the SDK's synchronous face: what is handed to it late, what is left on it, and a fork."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading

import pytest

from oncelog.client.portal import Portal
from oncelog.core.errors import ClientClosed

DEADLINE_S = 20


async def own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_what_comes_for_a_stopped_loop_is_no_error_and_is_done_later() -> None:
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


def test_portals_at_once_have_a_loop_each() -> None:
    """Only one that nobody runs is given out."""
    portals = [Portal() for _ in range(3)]
    assert len({id(portal.run(own_loop())) for portal in portals}) == 3
    for portal in portals:
        portal.stop()


def test_what_has_not_ended_is_cancelled_and_does_not_go_on_in_the_next() -> None:
    """Its thread would wait for ever, and the next client's loop would work for a client that is closed."""
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


def test_nothing_is_begun_after_the_end() -> None:
    """On a loop that nobody runs it would not be answered."""
    portal = Portal()
    portal.stop()
    portal.stop()
    assert not portal.alive
    with pytest.raises(ClientClosed):
        portal.run(own_loop())


def test_nothing_is_begun_while_it_ends() -> None:
    """What was begun then would be left on the loop, and its caller would wait until somebody makes another client."""
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


def test_forked_child_leaves_the_loops_of_its_parent_alone() -> None:
    """Both would wait on the same descriptors, and one would take the other's events."""
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)
