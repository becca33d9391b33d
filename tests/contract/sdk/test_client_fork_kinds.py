"""Forks of a client's process by the ways of starting a process, and with gRPC imported before or after the SDK.

What each of them needs is in `test_client_forks`.
"""

import pytest

from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.test_client_forks import printed_by

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]

_IMPORT_ORDER = """
import os, sys
del os.environ["GRPC_ENABLE_FORK_SUPPORT"]
import FIRST
import SECOND
theirs = grpc
import asyncio, signal

async def main():
    ends = set()
    async with await oncelog.connect(sys.argv[1]) as client:
        producer = await client.create_producer("flights")
        for _ in range(30):
            sends = [producer.send_nowait(b"x") for _ in range(20)]
            await asyncio.sleep(0)
            if not (child := os.fork()):
                signal.alarm(60)
                os._exit(0)
            ends.add((await asyncio.to_thread(os.waitpid, child, 0))[1])
            await asyncio.gather(*sends)
    return ends

print(asyncio.run(main()))
import grpc, grpc.aio
assert grpc is theirs
from oncelog.rpc import library
print(library.grpc is theirs, os.environ["GRPC_ENABLE_FORK_SUPPORT"])
"""


@pytest.mark.asyncio
@pytest.mark.parametrize(("first", "second", "shared"), [("oncelog", "grpc", True), ("grpc", "oncelog", False)])
async def test_no_child_dies_where_grpc_was_imported_first(
    cluster: FakeCluster, first: str, second: str, shared: bool
) -> None:
    """gRPC reads the setting when it is imported, as by sorted imports. A third of the children died with SIGSEGV."""
    program = _IMPORT_ORDER.replace("FIRST", first).replace("SECOND", second)
    assert await printed_by("-c", program, cluster.url) == f"{{0}}\n{shared} false\n"


_POOL = """
import concurrent.futures, multiprocessing, sys
import oncelog
with oncelog.Client(sys.argv[1]) as client:
    client.create_producer("flights").send(b"x")
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            print(method, pool.submit(publish_from_worker, sys.argv[1]).result(60))
"""


@pytest.mark.asyncio
async def test_worker_of_a_process_pool_has_a_client_of_its_own(cluster: FakeCluster) -> None:
    """Of each start method."""
    program = f"from tests.contract.sdk.pool_worker import publish_from_worker\n{_POOL}"
    assert await printed_by("-c", program, cluster.url) == "fork True\nforkserver True\nspawn True\n"
