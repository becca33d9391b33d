"""Processes that fork with a connected client: no child dies, each may have a client, and none uses the parent's.

Everything is done in processes of their own, because pytest's own process has gRPC's servers.
"""

import asyncio
import json
import os
import pickle
import sys
from typing import Any

import pytest

import oncelog
from tests.contract.sdk import forking
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
FORKS = len(forking.KINDS)


async def printed_by(*arguments: str, **environment: str) -> str:
    """The standard output of a Python program, which must succeed."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment}
    )
    async with asyncio.timeout(180):
        printed, _ = await program.communicate()
    assert program.returncode == 0
    return printed.decode()


@pytest.mark.asyncio
async def test_no_forked_child_dies_and_each_may_have_a_client(cluster: FakeCluster) -> None:
    """With gRPC's own fork handlers a third of the children died with SIGSEGV or SIGABRT though they used nothing, and
    a new client in a child never got a connection."""
    printed = await printed_by("-m", "tests.contract.sdk.forking", cluster.url, str(FORKS))
    assert json.loads(printed) == {kind.__name__: {"0": 1} for kind in forking.KINDS}
    parents = cluster.topic("flights").values()
    assert parents.count(b"in flight") == FORKS * forking.SENDS, "of the sends in flight none is lost or stored twice"


_ASYNCIO_PARENT = """
import asyncio, multiprocessing, os, signal, sys
import oncelog
from oncelog.errors import ClientForked

async def refused(call):
    try:
        async with asyncio.timeout(60):
            await call
    except ClientForked:
        return
    raise AssertionError("the call did not fail")

async def in_child(client, producer, reader, consumer, message):
    await refused(client.create_producer("flights"))
    await refused(client.last_message_id("flights"))
    await refused(producer.send(b"x"))
    await refused(producer.send_many([b"x"]))
    await refused(producer.flush())
    await refused(reader.read_next())
    await refused(reader.read_batch())
    await refused(reader.has_message_available())
    await refused(reader.seek(oncelog.EARLIEST))
    await refused(anext(reader))
    await refused(consumer.receive())
    await refused(consumer.receive_batch(max_wait=1))
    await refused(consumer.ack(message))
    await refused(consumer.nack(message))
    await refused(consumer.seek(oncelog.EARLIEST))
    for each in (producer, reader, consumer, client):
        await each.close()
    async with await oncelog.connect(sys.argv[1]) as own:
        await (await own.create_producer("child")).send(b"x")

def child(*inherited):
    signal.alarm(60)
    asyncio.run(in_child(*inherited))

async def main():
    async with await oncelog.connect(sys.argv[1]) as client:
        producer = await client.create_producer("flights")
        await producer.send_many([b"one", b"two"])
        reader = await client.create_reader("flights")
        await reader.read_next()
        consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
        message = await consumer.receive()
        process = multiprocessing.get_context("fork").Process(
            target=child, args=(client, producer, reader, consumer, message))
        process.start()
        await asyncio.to_thread(process.join)
        await producer.send(b"three")
        await consumer.ack(message)
        print(process.exitcode)

asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_asyncio_client_of_the_parent_raises_one_error_in_a_child(cluster: FakeCluster) -> None:
    """A call would wait for the event loop of the parent, for ever."""
    assert await printed_by("-c", _ASYNCIO_PARENT, cluster.url) == "0\n"


_DROPPED = """
import asyncio, gc, os, signal, sys
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.wire.metadata_pb2 import LookupRequest
from oncelog.errors import TopicNotFound

async def main():
    global channel
    channel = Channel(sys.argv[1].removeprefix("oncelog://"))
    await channel.connected()
    signal.alarm(60)
    if not (child := os.fork()):
        signal.alarm(20)
        channel = None
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        await channel.call(LOOKUP, LookupRequest(topic="public/default/missing"), timeout_ms=20_000)
    except TopicNotFound:
        print("answered")
    await channel.close()

asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_child_that_drops_an_inherited_channel_leaves_it_to_the_parent(cluster: FakeCluster) -> None:
    """gRPC's finalizer waits for ever for threads that only the parent has."""
    cluster.knobs.may_create = False
    assert await printed_by("-c", _DROPPED, cluster.url) == "answered\n"


@pytest.mark.asyncio
async def test_own_setting_of_the_user_wins() -> None:
    """He may have a reason that the SDK does not know."""
    show = "import os, oncelog; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    assert await printed_by("-c", show, GRPC_ENABLE_FORK_SUPPORT="true") == "true\n"


@pytest.mark.asyncio
async def test_client_cannot_be_given_to_another_process(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The error was about a lock or a memoryview somewhere inside."""
    given: list[Any] = [client, await client.create_producer("flights"), await client.create_reader("flights")]
    given.append(await client.subscribe("flights", subscription="s"))
    with await asyncio.to_thread(oncelog.Client, "oncelog://127.0.0.1:1") as waiting:
        given.append(waiting)
        for each in given:
            with pytest.raises(TypeError, match="cannot be given to another process: create a client there"):
                pickle.dumps(each)
