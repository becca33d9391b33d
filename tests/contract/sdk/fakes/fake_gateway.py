"""A metadata service in small that passes calls on to the owners of a fake cluster: real gRPC, the real gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.core.ids import Incarnation
from oncelog.metadata.gateway.owner_gateway import Gateway, GatewayLimits
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.rpc.server import Server
from oncelog.runtime.security import OPEN, Security
from tests.contract.sdk.fakes.fake_cluster import FakeCluster


class KnownOwners(Owners):
    """The one owner of a fake cluster, wherever it is now."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def find(self, owner: Incarnation) -> LiveOwner | None:
        """None: another one, or nobody serves."""
        now = self._cluster.owner
        if now is None or now.incarnation != owner:
            return None
        host, _, port = now.address.rpartition(":")
        return LiveOwner(owner, host, {"grpc": int(port)}, 0)

    def is_lost(self, owner: Incarnation) -> bool:
        """Whether it is not there."""
        return self.find(owner) is None


class FakeGateway:
    """One replica: look-ups, and the gateway."""

    def __init__(self, cluster: FakeCluster, *, limits: GatewayLimits | None = None, security: Security = OPEN) -> None:
        self.gateway = Gateway(KnownOwners(cluster), security.peers, limits=limits)
        self.server = Server(security)
        self.address = ""
        self._cluster = cluster

    @classmethod
    @asynccontextmanager
    async def running(
        cls, cluster: FakeCluster, *, limits: GatewayLimits | None = None, security: Security = OPEN
    ) -> AsyncIterator["FakeGateway"]:
        replica = cls(cluster, limits=limits, security=security)
        replica.server.client_unary(LOOKUP, lambda request, _caller: cluster.look_up(request))
        replica.gateway.serve(replica.server)
        replica.address = f"127.0.0.1:{await replica.server.start()}"
        try:
            yield replica
        finally:
            await replica.kill()

    @property
    def url(self) -> str:
        return f"oncelog+proxy://{self.address}"

    async def kill(self) -> None:
        await self.server.stop(grace_ms=0)
        await self.gateway.close()
