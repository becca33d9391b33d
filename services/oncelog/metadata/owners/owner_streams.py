"""The gRPC stream of each topic owner: heartbeats and assignments go to the owner, its state comes back."""

import asyncio
import re

from oncelog.core.errors import InvalidArgument, WrongCluster
from oncelog.core.ids import Incarnation
from oncelog.metadata.owners.connected_owner import ConnectedOwner, now_ms
from oncelog.metadata.owners.owners import Owners
from oncelog.rpc.reachability import resolve
from oncelog.rpc.server import ServerStream
from oncelog.wire import metadata_pb2 as pb

OwnerStream = ServerStream[pb.OwnerHello, pb.OwnerCommand]
_INCARNATION = re.compile(r"[0-9a-f]{32}")
_ADDRESS = re.compile(r"[^\s/]{1,255}:[0-9]{1,5}")


class OwnerStreams:
    """Serves the stream of each topic owner."""

    def __init__(self, cluster_id: str, owners: Owners) -> None:
        self._cluster_id = cluster_id
        self._owners = owners

    async def serve(self, stream: OwnerStream) -> None:
        """Handle one stream. However it ends, the owner registry is informed."""
        hello = await anext(aiter(stream), None)
        if hello is None:
            return
        self._check(hello)
        await stream.write(pb.OwnerCommand(welcome=pb.Welcome(cluster_id=self._cluster_id)))
        link = self._owners.opened(Incarnation(hello.incarnation), hello.address, draining=hello.draining)
        link.takes_lists = hello.takes_lists
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = (tasks.create_task(_send_commands(link, stream)), tasks.create_task(_resolve(link)))
                async for update in stream:
                    link.heartbeats.answered(update.beat)
                    self._owners.updated(link, draining=update.draining, topic_count=update.topic_count)
                for task in helpers:
                    task.cancel()
        finally:
            self._owners.closed(link)

    def _check(self, hello: pb.OwnerHello) -> None:
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"wrong cluster: this metadata service belongs to {self._cluster_id}, the owner to {hello.cluster_id}"
            )
        if _INCARNATION.fullmatch(hello.incarnation) is None:
            raise InvalidArgument(
                "the first message of an owner's stream must have the owner's incarnation, 32 hexadecimal digits",
                field="incarnation",
            )
        if _ADDRESS.fullmatch(hello.address) is None:
            raise InvalidArgument(
                "the first message of an owner's stream must have the owner's address, host:port", field="address"
            )


async def _send_commands(link: ConnectedOwner, stream: OwnerStream) -> None:
    """Send assignments as they arrive, and heartbeats in between. Only this task writes to the stream."""
    while True:
        timeout_ms = link.heartbeats.due_ms(now_ms())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                assignments = await link.waiting()
        except TimeoutError:
            await stream.write(pb.OwnerCommand(beat=pb.Beat(number=link.heartbeats.sent(now_ms()))))
        else:
            orders = [pb.AssignTopic(topic_id=each.topic_id, owner_epoch=each.owner_epoch) for each in assignments]
            if len(orders) == 1:
                await stream.write(pb.OwnerCommand(assign=orders[0]))
            else:
                await stream.write(pb.OwnerCommand(assign_all=pb.AssignTopics(topics=orders)))


async def _resolve(link: ConnectedOwner) -> None:
    """Resolve the owner's host name now: a pod's name disappears with the pod, and may later name another one."""
    link.probe_address = await resolve(link.address)
