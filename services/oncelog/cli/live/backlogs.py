"""How far subscriptions are behind, over all topics: what `oncelog lag` and `oncelog top` show.

    list of topics with a backlog, in pages      -> topics, the partitions of one together, the largest bound first
    subscriptions of these, some topics at once  -> the subscriptions with the largest backlogs

Rules
- A topic's bound is the sum of the largest backlogs of its partitions: no subscription of it has a larger backlog. So
  topics whose bound is below the last subscription that is shown are not asked for their subscriptions.
- A topic that moves or is deleted meanwhile counts with what the list has said of it.
- Topics without an owner have no statistics, and are not listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from oncelog.cli.admin.rest import AT_ONCE_MAX, AdminApi, Answer, Query, number, objects
from oncelog.cli.admin.rest_paths import ROOT, subscription_path, topic_path, topics_path
from oncelog.core.errors import OncelogError
from oncelog.core.names import parse_topic, whole_topic

#: Of one request.
PAGE = 1_000
#: Topics of one list at most.
TOPICS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """One subscription, over all partitions of its topic. oldest_unacked_ms: when the oldest message of the backlog was
    stored, at the latest; None: there is none. consumer_count None: not known."""

    topic: str
    subscription: str
    msg_backlog: int
    oldest_unacked_ms: int | None
    consumer_count: int | None


class Backlogs(NamedTuple):
    """rows: the largest backlog first. topics: how many topics and partitions have a backlog. more: not all
    subscriptions with a backlog are in `rows`. silent_owners: their topics are missing."""

    rows: list[Backlog]
    topics: int = 0
    more: bool = False
    silent_owners: list[dict[str, object]] = []  # noqa: RUF012 (never changed)

    def answer(self) -> dict[str, Answer]:
        """As -o json prints it."""
        rows: list[object] = [asdict(row) for row in self.rows]
        silent: list[object] = list(self.silent_owners)
        return {"subscriptions": rows, "topics": self.topics, "more": self.more, "silent_owners": silent}


class _Topic(NamedTuple):
    """name: without the number of a partition. parts: rows of the list."""

    name: str
    parts: list[dict[str, object]]
    bound: int


def of_topic(api: AdminApi, topic: str, subscription: str | None) -> Backlogs:
    """The subscriptions of one topic, also those without a backlog, or one of them. Raises TopicNotFound,
    SubscriptionNotFound."""
    listed = [subscription] if subscription is not None else api.get(f"{topic_path(topic)}/subscriptions")
    names = [str(each) for each in listed] if isinstance(listed, list) else []
    rows = []
    for name, answer in zip(names, api.get_each([(subscription_path(topic, name), {}) for name in names]), strict=True):
        if isinstance(answer, OncelogError):
            raise answer
        parts = objects(list(answer.values())) if isinstance(answer, dict) else []
        rows.append(_summed(str(parse_topic(topic)), name, parts))
    return Backlogs(_ordered(rows), topics=1)


def of_topics(api: AdminApi, namespace: str | None, limit: int) -> Backlogs:
    """The `limit` subscriptions with the largest backlogs. namespace: tenant/namespace; None: of the cluster.

    Raises NamespaceNotFound.
    """
    path = f"{ROOT}/topics" if namespace is None else f"{ROOT}/topics/{namespace}"
    listed, silent, cut = _listed(api, path)
    topics = _by_topic(listed)
    rows: list[Backlog] = []
    asked = 0
    while asked < len(topics) and not _enough(rows, limit, topics[asked].bound):
        some = topics[asked : asked + AT_ONCE_MAX]
        asked += len(some)
        rows = _ordered(rows + [row for topic in _described(api, some, limit) for row in topic])
    if not listed and namespace is not None:
        api.get(topics_path(namespace))  # a name that is wrong has no backlog either
    more = cut or asked < len(topics) or len(rows) > limit
    return Backlogs(rows[:limit], len(listed), more, silent)


def _listed(api: AdminApi, path: str) -> tuple[list[dict[str, object]], list[dict[str, object]], bool]:
    """Rows of topics with a backlog; owners that did not answer; whether there are more topics."""
    found: list[dict[str, object]] = []
    silent: dict[object, dict[str, object]] = {}
    after: str | None = None
    while len(found) < TOPICS_MAX:
        page = api.get(path, state="backlog", limit=PAGE, after=after)
        if not isinstance(page, dict):
            break
        found += objects(page.get("topics"))
        silent |= {each.get("incarnation"): each for each in objects(page.get("silent_owners"))}
        if page.get("next_after") is None:
            return found, list(silent.values()), False
        after = str(page["next_after"])
    return found, list(silent.values()), True


def _by_topic(listed: Sequence[dict[str, object]]) -> list[_Topic]:
    """A topic that changed its place between two pages is there twice: its last row counts."""
    parts: dict[str, dict[str, dict[str, object]]] = {}
    for row in listed:
        name = str(row.get("topic"))
        parts.setdefault(whole_topic(name), {})[name] = row
    topics = [
        _Topic(name, list(rows.values()), sum(number(row.get("backlog_messages")) for row in rows.values()))
        for name, rows in parts.items()
    ]
    return sorted(topics, key=lambda topic: (-topic.bound, topic.name))


def _enough(rows: Sequence[Backlog], limit: int, bound: int) -> bool:
    """Whether no topic of this bound can have one of the subscriptions that are shown."""
    return len(rows) >= limit and rows[limit - 1].msg_backlog >= bound


def _described(api: AdminApi, topics: Sequence[_Topic], limit: int) -> list[list[Backlog]]:
    """The subscriptions of each topic that have a backlog."""
    query: Query = {"sort": "backlog", "limit": min(PAGE, max(limit, 1))}
    calls = [(f"{topic_path(str(row['topic']))}/subscriptionStats", query) for topic in topics for row in topic.parts]
    answers = iter(api.get_each(calls))
    found = []
    for topic in topics:
        parts: dict[str, list[Mapping[str, object]]] = {}
        for row in topic.parts:
            answer = next(answers)
            for each in _subscriptions(row, answer):
                parts.setdefault(str(each.get("name")), []).append(each)
        summed = [_summed(topic.name, name, each) for name, each in parts.items()]
        found.append([row for row in summed if row.msg_backlog])
    return found


def _subscriptions(row: Mapping[str, object], answer: Answer | OncelogError) -> list[dict[str, object]]:
    """Of one topic or partition: what its owner says, or what the list has said."""
    if isinstance(answer, dict):
        return objects(answer.get("subscriptions"))
    return [
        {
            "name": row.get("backlog_subscription"),
            "msg_backlog": row.get("backlog_messages"),
            "oldest_unacked_ms": row.get("oldest_unacked_ms"),
        }
    ]


def _summed(topic: str, name: str, parts: Sequence[Mapping[str, object]]) -> Backlog:
    oldest = [number(part.get("oldest_unacked_ms")) for part in parts if part.get("oldest_unacked_ms")]
    known = all(part.get("consumer_count") is not None for part in parts)
    return Backlog(
        topic,
        name,
        sum(number(part.get("msg_backlog")) for part in parts),
        min(oldest, default=None),
        sum(number(part.get("consumer_count")) for part in parts) if known else None,
    )


def _ordered(rows: Sequence[Backlog]) -> list[Backlog]:
    return sorted(rows, key=lambda row: (-row.msg_backlog, row.topic, row.subscription))
