"""Questions of gateways about groups of consumers, to the coordinator of a namespace: the owner of one topic of it.

A question whose answer does not arrive is asked again, of the next owner if there is one. So the coordinator may get it
twice. JoinGroup with the same new member id is one member.
"""

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.network.network import OWNER_CALL_TIMEOUT_MS
from oncelog.core.access import Caller
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.events import JoinRequested, SyncRequested
from oncelog.core.ids import OwnerEpoch
from oncelog.core.names import KAFKA_GROUPS, NamespaceName, TopicName
from oncelog.rpc.codecs.group_codec import ASK_GROUP, GroupQuestion, answer_from_wire, question_to_wire
from oncelog.rpc.codecs.owner_codec import caller_to_wire
from oncelog.wire.groups_pb2 import GroupAnswer as WireAnswer
from oncelog.wire.groups_pb2 import GroupRequest as WireRequest


def coordinator_topic(namespace: NamespaceName) -> TopicName:
    """The topic whose owner coordinates the groups of a namespace."""
    return TopicName(namespace.tenant, namespace.namespace, KAFKA_GROUPS)


async def ask_coordinator(
    client: AsyncClient, topic: TopicName, question: GroupQuestion, *, on_behalf_of: Caller, timeout_ms: int
) -> GroupAnswer:
    """The answer, which for JoinGroup and SyncGroup may take as long as the members of the group take.

    topic: of the coordinator. on_behalf_of: for superusers: the caller whose rights are checked. Raises TopicNotFound,
    PermissionDenied, and DeadlineExceeded with the last retriable error.
    """
    network = network_of(client)
    network.check_open()
    waits = isinstance(question, JoinRequested | SyncRequested)
    call_ms = timeout_ms if waits else min(timeout_ms, OWNER_CALL_TIMEOUT_MS)

    async def ask(again: bool) -> WireAnswer:
        route = await network.route(topic, fresh=again, create=False)
        request = WireRequest(
            topic=str(topic), topic_id=route.topic_id, owner_epoch_seen=network.epochs.highest(route.topic_id),
            on_behalf_of=caller_to_wire(on_behalf_of), **question_to_wire(question),
        )  # fmt: skip
        answer = await network.ask_kept(route, ASK_GROUP, request, timeout_ms=call_ms)
        network.epochs.believe(route.topic_id, OwnerEpoch(answer.owner_epoch))
        return answer

    return answer_from_wire(await persist(ask, timeout_ms=timeout_ms, what=f"the coordinator of groups {topic}"))
