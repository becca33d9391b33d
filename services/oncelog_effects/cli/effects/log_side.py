"""What the cluster knows about the effects of a subscription, over REST."""

from dataclasses import dataclass
from typing import Any

from oncelog.cli.admin.rest import AdminApi, number
from oncelog.cli.admin.rest_paths import ROOT, subscription_path, topic_path
from oncelog.core.acks.changes import IndexRange
from oncelog.core.counted import counted
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import Conflict, Fatal, TopicNotFound
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber
from oncelog.core.names import parse_topic
from oncelog_effects.core.effects.ordered import Source
from oncelog_effects.store import SourceNames


@dataclass(frozen=True, slots=True)
class LogSide:
    """One topic or partition. consumers: how many are connected."""

    topic: str
    topic_id: str
    subscription: str
    cluster_id: str
    consumers: int
    effects: SubscriptionEffects

    @property
    def source(self) -> Source:
        """Of a bound subscription."""
        partition = parse_topic(self.topic).partition
        return Source(self.effects.effect, self.topic_id, -1 if partition is None else partition)

    @property
    def names(self) -> SourceNames:
        return SourceNames(self.topic, self.subscription, self.cluster_id)


def cluster_id_of(api: AdminApi) -> str:
    """Raises Fatal if the REST interface is no Oncelog's."""
    clusters = api.get(f"{ROOT}/clusters")
    if not isinstance(clusters, list) or len(clusters) != 1:
        raise Fatal(f"the cluster does not say who it is: {clusters!r}")
    return str(clusters[0])


def topic_id_of(api: AdminApi, topic: str) -> str | None:
    """None: the topic does not exist. Raises every other error: unknown is not gone."""
    try:
        record = api.get(topic_path(topic))
    except TopicNotFound:
        return None
    if not isinstance(record, dict) or not record.get("topic_id"):
        raise Fatal(f"the record of topic {topic} has no topic_id")
    return str(record["topic_id"])


def log_sides(
    api: AdminApi, topic: str, subscription: str, *, consumed_from: int = 0, cluster_id: str = ""
) -> list[LogSide]:
    """Of a topic, or of all partitions of it that were used. cluster_id: if it is known already. Raises TopicNotFound,
    SubscriptionNotFound."""
    answer = api.get(subscription_path(topic, subscription), consumed_from=consumed_from)
    cluster_id = cluster_id or cluster_id_of(api)
    sides = []
    answers: dict[str, Any] = answer if isinstance(answer, dict) else {}
    for name, shown in answers.items():
        topic_id = topic_id_of(api, name)
        if topic_id is None:
            raise TopicNotFound(f"topic {name} was deleted just now", topic=name)
        known = shown.get("effects") if isinstance(shown, dict) else None
        if not isinstance(known, dict) or "consumed" not in known:
            raise Fatal(f"the owner of {name} does not say what it knows about effects: upgrade the cluster")
        consumers = number(shown.get("consumer_count"))
        sides.append(LogSide(name, topic_id, subscription, cluster_id, consumers, _effects_of(known)))
    return sides


def require_stopped(sides: list[LogSide]) -> None:
    """Raises Conflict while programs are connected: what they apply meanwhile would be under the old rules."""
    used = [side for side in sides if side.consumers]
    if used:
        raise Conflict(
            f"subscription {used[0].subscription} of {used[0].topic} has "
            f"{counted(used[0].consumers, 'connected consumer')}: stop the programs, and try again"
        )


def _effects_of(known: dict[str, Any]) -> SubscriptionEffects:
    return SubscriptionEffects(
        number=SubscriptionNumber(known["number"]),
        store_id=known["store_id"],
        effect=known["effect"],
        seek_epoch=SeekEpoch(known["seek_epoch"]),
        redo_epoch=SeekEpoch(known["redo_epoch"]),
        redo_index=known["redo_index"],
        generation=Generation(known["generation"]),
        mark_delete=known["mark_delete"],
        first_index=known["first_index"],
        next_index=known["next_index"],
        known_from=known["known_from"],
        forgotten_below=known["forgotten_below"],
        consumed=tuple(IndexRange(first, last) for first, last in known["consumed"]),
        complete=known["complete"],
    )
