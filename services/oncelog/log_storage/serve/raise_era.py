"""The call RaiseEra: a restore, or an operator, gives this node a new era (`core.node.era`).

It is served also while the node waits for a cluster. A process that is no superuser cannot call it, and what it says is
compared: with the cluster id of the directory, and with the era that the node has (hazard era-of-a-liar).
"""

from oncelog.core.era import Era
from oncelog.core.errors import WrongCluster
from oncelog.core.ids import Incarnation
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.rpc.codecs.restore_codec import RAISE_ERA
from oncelog.rpc.codecs.storage_codec import wire_status
from oncelog.rpc.server import Server
from oncelog.wire import recovery_pb2 as pb


class RaiseEraService:
    def __init__(self, runner: NodeRunner, cluster_id: str) -> None:
        """cluster_id: of the directory."""
        self._runner = runner
        self._cluster_id = cluster_id

    def add_to(self, server: Server) -> None:
        server.unary(RAISE_ERA, self.raise_era, any_era=True)

    async def raise_era(self, request: pb.RaiseEraRequest) -> pb.RaiseEraAnswer:
        """Returns after the era is durable. Raises InvalidArgument, WrongCluster, TooManyRequests."""
        era = Era.checked(request.era, request.restore_id)
        if request.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"this storage node is of cluster {self._cluster_id}, and the era is for cluster "
                f"{request.cluster_id[:80] or '(none)'}: ask the nodes of that cluster",
                cluster_id=self._cluster_id,
            )
        self._runner.core.ledgers.era.refuse_jump(era)
        answer = await self._runner.raise_era(Incarnation(request.target), era, committed=request.committed)
        number, restore_id = answer.era
        return pb.RaiseEraAnswer(status=wire_status(answer.status), era=number, restore_id=restore_id)
