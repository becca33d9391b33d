"""Requests of groups of consumers, for doors that ask on behalf of their clients."""

import time
from functools import partial

from oncelog.core.access import Caller, Right, caller_for
from oncelog.core.errors import InvalidArgument, TopicLoading
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import KAFKA_GROUPS, parse_topic
from oncelog.rpc.codecs.group_codec import answer_to_wire, question_from_wire
from oncelog.rpc.codecs.owner_codec import caller_from_wire
from oncelog.topic_owner.shell.group_host import GroupHost
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize
from oncelog.topic_owner.streams.current_topic import still_served
from oncelog.wire import groups_pb2 as pb

#: How old a proof of ownership may be. Each proof asks ZooKeeper or storage nodes, and each member sends a heartbeat
#: every few seconds. A former owner with such a proof does no harm: it can write no generation any more, and the owners
#: of the partitions refuse commits of an older one.
PROOF_AGE_S = 2.0


class GroupService:
    """The handler. It keeps the coordinator of each topic of this process that coordinates groups."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._hosts: dict[TopicRunner, GroupHost] = {}

    async def ask(self, request: pb.GroupRequest, caller: Caller) -> pb.GroupAnswer:
        """Raises NotOwner and other retriable errors, PermissionDenied, InvalidArgument."""
        question = question_from_wire(request)
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        stated = caller_from_wire(request.on_behalf_of) if request.HasField("on_behalf_of") else None
        await authorize(runner, caller_for(caller, stated), Right.CONSUME, of_doors=True)
        seen, proofs = OwnerEpoch(request.owner_epoch_seen), runner.ownership_proofs
        if seen > runner.owner_epoch or time.monotonic() - proofs.proved_at > PROOF_AGE_S:
            await proofs.until_current(seen)
        answer = await self._host_of(runner).ask(question)
        return pb.GroupAnswer(owner_epoch=runner.owner_epoch, **answer_to_wire(answer))

    def _host_of(self, runner: TopicRunner) -> GroupHost:
        """Raises TopicLoading; InvalidArgument for a topic that coordinates no groups."""
        if parse_topic(runner.name).local != KAFKA_GROUPS:
            raise InvalidArgument(f"topic {runner.name} coordinates no groups: only {KAFKA_GROUPS} does", field="topic")
        serving, host = still_served(runner), self._hosts.get(runner)
        if host is None:
            runner.left.append(partial(self._left, runner))
        elif host.serving is serving:
            return host
        else:
            host.end(TopicLoading("the topic of the groups was taken over again: try again"))
        host = self._hosts[runner] = GroupHost(runner, serving)
        return host

    def _left(self, runner: TopicRunner) -> None:
        self._hosts.pop(runner).end(runner.core.ownership.lost("look it up again"))
