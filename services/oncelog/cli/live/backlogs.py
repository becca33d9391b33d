"""How far subscriptions are behind: what `oncelog lag` and `oncelog top` show, from REST's list of lags.

The list has each partition for itself. Its pages are read to the end, because a subscription that is behind a little on
each of many partitions may be behind by more than one that is behind on a single topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self

from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import LAGS, topic_path, topics_path
from oncelog.core.errors import SubscriptionNotFound
from oncelog.core.names import parse_topic, whole_topic

#: Of one request.
PAGE = 1_000
#: Subscriptions of partitions that are read at most.
LISTED_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """One subscription, over all partitions of its topic. oldest_unacked_ms: when the oldest message of the backlog was
    stored; None: there is none, or it is not known yet."""

    topic: str
    subscription: str
    msg_backlog: int
    oldest_unacked_ms: int | None
    consumer_count: int


class Uncounted(NamedTuple):
    """Topics of which nothing is counted, as REST has them. None: not known, or not asked for."""

    without_owner: dict[str, object] | None = None
    waiting: dict[str, object] | None = None

    @classmethod
    def of(cls, page: Mapping[str, object]) -> Self:
        return cls(*(one if isinstance(one := page.get(name), dict) else None for name in cls._fields))


class Backlogs(NamedTuple):
    """rows: the largest backlog first. topics: how many topics and partitions they are of, also those that `rows` has
    no room for. more: not all subscriptions are in `rows`. silent_owners: their topics are missing. uncounted: empty if
    the rows are those of one topic, which is served."""

    rows: list[Backlog]
    topics: int = 0
    more: bool = False
    silent_owners: list[dict[str, object]] = []  # noqa: RUF012 (never changed)
    uncounted: Uncounted = Uncounted()

    def answer(self) -> dict[str, Answer]:
        """As -o json prints it."""
        rows: list[object] = [asdict(row) for row in self.rows]
        silent: list[object] = list(self.silent_owners)
        return {
            "subscriptions": rows,
            "topics": self.topics,
            "more": self.more,
            "silent_owners": silent,
            **self.uncounted._asdict(),
        }


class _Listed(NamedTuple):
    """rows: as REST has them. cut: there are more. uncounted: of the last page."""

    rows: list[dict[str, object]]
    silent_owners: list[dict[str, object]]
    cut: bool
    uncounted: Uncounted


def of_topic(api: AdminApi, topic: str, subscription: str | None) -> Backlogs:
    """The subscriptions of one topic, also those without a backlog, or one of them. Raises TopicNotFound,
    SubscriptionNotFound."""
    name = parse_topic(topic)
    # The list has no topics without an owner. This call places them.
    names = api.get(f"{topic_path(topic)}/subscriptions")
    if subscription is not None and (not isinstance(names, list) or subscription not in names):
        raise SubscriptionNotFound(f"topic {name} has no subscription {subscription}")
    listed = _listed(api, str(name.namespace_name), topic=str(name), subscription=subscription)
    rows = [
        row
        for row in listed.rows
        if str(name) in (row.get("topic"), whole_topic(str(row.get("topic")))) and subscription in (None, row["name"])
    ]
    return _summed(listed._replace(rows=rows, uncounted=Uncounted()), topic=str(name))


def of_topics(api: AdminApi, namespace: str | None, limit: int) -> Backlogs:
    """The `limit` subscriptions with the largest backlogs. namespace: tenant/namespace; None: of the cluster.

    Raises NamespaceNotFound.
    """
    listed = _listed(api, namespace, state="backlog")
    if not listed.rows and namespace is not None:
        api.get(topics_path(namespace))  # a name that is wrong has no backlog either
    found = _summed(listed)
    return found._replace(rows=found.rows[:limit], more=found.more or len(found.rows) > limit)


def _listed(api: AdminApi, namespace: str | None, **query: str | None) -> _Listed:
    path = LAGS if namespace is None else f"{LAGS}/{namespace}"
    # A subscription whose backlog changes meanwhile may be on two pages: the last one counts.
    rows: dict[tuple[object, object], dict[str, object]] = {}
    silent: dict[object, dict[str, object]] = {}
    after: str | None = None
    uncounted = Uncounted()
    while len(rows) < LISTED_MAX:
        page = api.get(path, **query, limit=PAGE, after=after)
        assert isinstance(page, dict), "an object by the description of the call"
        rows |= {(row.get("topic"), row.get("name")): row for row in objects(page.get("subscriptions"))}
        uncounted = Uncounted.of(page)
        silent |= {each.get("incarnation"): each for each in objects(page.get("silent_owners"))}
        if page.get("next_after") is None:
            return _Listed(list(rows.values()), list(silent.values()), False, uncounted)
        after = str(page["next_after"])
    return _Listed(list(rows.values()), list(silent.values()), True, uncounted)


def _summed(listed: _Listed, topic: str | None = None) -> Backlogs:
    """With the partitions of one subscription as one row. topic: of all rows, as the user has named it."""
    parts: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in listed.rows:
        parts.setdefault((topic or whole_topic(str(row.get("topic"))), str(row.get("name"))), []).append(row)
    rows = [_row(*key, each) for key, each in parts.items()]
    rows.sort(key=lambda row: (-row.msg_backlog, row.topic, row.subscription))
    return Backlogs(
        rows, len({row.get("topic") for row in listed.rows}), listed.cut, listed.silent_owners, listed.uncounted
    )


def _row(topic: str, subscription: str, parts: Sequence[dict[str, object]]) -> Backlog:
    oldest = [number(part.get("oldest_unacked_ms")) for part in parts if part.get("oldest_unacked_ms")]
    return Backlog(
        topic,
        subscription,
        sum(number(part.get("msg_backlog")) for part in parts),
        min(oldest, default=None),
        sum(number(part.get("consumer_count")) for part in parts),
    )
