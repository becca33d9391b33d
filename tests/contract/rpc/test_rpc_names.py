"""A host name that moves to another address, as a pod's does: a channel resolves it again."""

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import FENCE
from oncelog.rpc.server import Server
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.rpc.name_server import NameServer
from tests.contract.rpc.rpc_serving import REQUEST, TIMEOUT_MS

#: Far above the half second after which a name is asked for again, far below gRPC's own 30 s.
DEADLINE_S = 60.0
BEFORE, AFTER = "127.0.0.1", "127.0.0.2"


async def serve(host: str, port: int = 0) -> tuple[Server, int]:
    """A server that says by its answer where it is."""

    async def fence(_request: pb.FenceRequest) -> pb.FenceAnswer:
        return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=int(host[-1]))

    server = Server()
    server.unary(FENCE, fence)
    return server, await server.start(host=host, port=port)


@pytest.mark.asyncio
async def test_name_is_resolved_again_soon_after_its_address_is_gone() -> None:
    """Metadata services are found by name: with gRPC's defaults a client fails for half a minute after a rolling
    restart.
    """
    async with NameServer.running(BEFORE) as names:
        server, port = await serve(BEFORE)
        async with Channel(f"dns://127.0.0.1:{names.port}/pod.cluster.test:{port}") as channel:

            async def told() -> int:
                try:
                    return (await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)).last_entry
                except ServiceUnavailable:
                    return 0

            assert await told() == int(BEFORE[-1])
            await server.stop(grace_ms=0)
            assert await told() == 0
            successor, _ = await serve(AFTER, port)
            names.address = AFTER
            assert await until(told, DEADLINE_S) == int(AFTER[-1])
        await successor.stop(grace_ms=0)
