"""The gRPC stream of each topic owner: heartbeats and assignments go to the owner, its state comes back."""

import asyncio
import re

from oncelog.core.errors import InvalidArgument, WrongCluster
from oncelog.core.ids import Incarnation
from oncelog.metadata.coordination.owner_link import OwnerLink
from oncelog.metadata.coordination.owners import Owners
from oncelog.metadata.coordination.topic_placer import now_ms
from oncelog.rpc.reachability import resolve
from oncelog.rpc.server import ServerStream
from oncelog.wire import metadata_pb2 as pb

OwnerStream = ServerStream[pb.OwnerHello, pb.OwnerCommand]
_INCARNATION = re.compile(r"[0-9a-f]{32}")
_ADDRESS = re.compile(r"[^\s/]{1,255}:[0-9]{1,5}")


class OwnerStreams:
    """The stream of each owner, for as long as that lives."""

    def __init__(self, cluster_id: str, owners: Owners) -> None:
        self._cluster_id = cluster_id
        self._owners = owners

    async def serve(self, stream: OwnerStream) -> None:
        """The handler of one stream; however it ends, its end is noticed."""
        hello = await anext(aiter(stream), None)
        if hello is None:
            return
        self._check(hello)
        await stream.write(pb.OwnerCommand(welcome=pb.Welcome(cluster_id=self._cluster_id)))
        link = self._owners.opened(Incarnation(hello.incarnation), hello.address, draining=hello.draining)
        try:
            async with asyncio.TaskGroup() as tasks:
                helping = (tasks.create_task(_send_commands(link, stream)), tasks.create_task(_resolve(link)))
                async for news in stream:
                    link.heartbeats.answered(news.beat)
                    self._owners.heard(link, draining=news.draining, topic_count=news.topic_count)
                for task in helping:
                    task.cancel()
        finally:
            self._owners.closed(link)

    def _check(self, hello: pb.OwnerHello) -> None:
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(f"this is cluster {self._cluster_id}, the owner belongs to {hello.cluster_id}")
        if _INCARNATION.fullmatch(hello.incarnation) is None:
            raise InvalidArgument("an owner's stream begins with its incarnation", field="incarnation")
        if _ADDRESS.fullmatch(hello.address) is None:
            raise InvalidArgument("an owner's stream begins with its address, host:port", field="address")


async def _send_commands(link: OwnerLink, stream: OwnerStream) -> None:
    """Assignments as they come, and beats between them; one task writes."""
    while True:
        timeout_ms = link.heartbeats.due_ms(now_ms())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                assignment = await link.assignments.get()
        except TimeoutError:
            await stream.write(pb.OwnerCommand(beat=pb.Beat(number=link.heartbeats.sent(now_ms()))))
        else:
            order = pb.AssignTopic(topic_id=assignment.topic_id, owner_epoch=assignment.owner_epoch)
            await stream.write(pb.OwnerCommand(assign=order))


async def _resolve(link: OwnerLink) -> None:
    """The name of a pod goes with the pod, and may come back for another: the one that is connected is probed."""
    link.probe_address = await resolve(link.address)
