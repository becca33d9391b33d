"""What the owner of a topic reports to an audit."""

from oncelog.client.network.backoff import persist
from oncelog.core.errors import NotOwner, TopicLoading
from oncelog.core.ids import TopicId
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.wire.owner_pb2 import TopicState, TopicStatesRequest
from oncelog_spark.cluster import ClusterConnection

_STATE_TIMEOUT_MS = 30_000
_SERVING = "serving"


async def ask_owner(
    cluster: ClusterConnection,
    topic: str,
    *,
    topic_id: TopicId | None = None,
    internal: bool = False,
    with_acks: bool = False,
    producers_max: int = 1,
) -> tuple[TopicId, TopicState]:
    """The topic's id and the state of it at the owner that serves it. topic_id: None: of the topic that has the name
    now. The other arguments are the fields of TopicStatesRequest. Raises TopicNotFound, PermissionDenied,
    DeadlineExceeded."""

    async def ask(again: bool) -> tuple[TopicId, TopicState]:
        route = await cluster.route(topic, fresh=again)
        asked = route.topic_id if topic_id is None else topic_id
        request = TopicStatesRequest(
            topic_ids=[asked], internal=internal, with_acks=with_acks, producers_max=producers_max
        )
        answer = await cluster.channel(route.address).call(TOPIC_STATES, request, timeout_ms=_STATE_TIMEOUT_MS)
        if not answer.states:
            raise NotOwner(f"the owner of {topic} does not serve it any more")
        [state] = answer.states
        if state.phase != _SERVING:
            raise TopicLoading(f"{topic} is {state.phase} at its owner")
        return asked, state

    return await persist(ask, timeout_ms=cluster.patience_ms, what=f"the owner of {topic}")
