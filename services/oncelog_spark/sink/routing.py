"""The destination of each row: a topic, and one of its partitions. Pure.

Rules
- The topic is the option `topic`; with destination=columns and without that option, it is the row's column `topic`.
- With destination=columns the row's column `partition` is the partition, where it is not null (or -1).
- Otherwise the partition is that of the row's key (`core.sdk.producer.routing`), or of its value where it has no key.
  Both depend only on the row and the number of partitions, so a retry routes the row the same way.
- The number of partitions is looked up once for a task, and stored in a claim or with the attempt: a retry after the
  topic got more partitions routes the same rows by the stored number.
"""

from collections.abc import Callable, Mapping, Sequence

from oncelog.core.errors import InvalidArgument
from oncelog.core.sdk.producer.routing import partition_of
from oncelog_spark.sink.rows import Rows

#: {full name of a topic: number of its partitions; 0: it is not partitioned}
Routes = Mapping[str, int]


class Router:
    """Looks up the number of partitions of each topic once. target: the topic of all rows; None: each row names its
    topic."""

    def __init__(self, target: str | None, look_up: Callable[[str], int]) -> None:
        self.target = target
        self._look_up = look_up
        self._known: dict[str, int] = {}

    def routes_for(self, rows: Rows) -> dict[str, int]:
        """The routes of the topics that these rows go to."""
        topics = [self.target] if self.target is not None else dict.fromkeys(rows.topics or ())
        return {topic: self.partitions_of(topic) for topic in topics}

    def partitions_of(self, topic: str) -> int:
        """0: the topic is not partitioned."""
        if topic not in self._known:
            self._known[topic] = self._look_up(topic)
        return self._known[topic]


def spread(rows: Rows, target: str | None, routes: Routes) -> dict[str, Sequence[int]]:
    """{destination: numbers of the rows that go there, ascending}; a destination is a topic without partitions, or a
    partition.

    Raises InvalidArgument for a partition that does not exist.
    """
    if target is not None and not routes[target] and rows.partitions is None:
        return {target: range(len(rows))}
    found: dict[str, list[int]] = {}
    topics = [target] * len(rows) if target is not None else rows.topics or ()
    for at, topic in enumerate(topics):
        if topic is None:
            raise InvalidArgument("column topic is null in a row: destination=columns requires it", field="topic")
        found.setdefault(_destination(rows, at, topic, routes[topic]), []).append(at)
    return dict(found)


def _destination(rows: Rows, at: int, topic: str, count: int) -> str:
    number = None if rows.partitions is None else rows.partitions[at]
    if number is not None and number >= count:
        has = f"has {count} partitions" if count else "is not partitioned"
        raise InvalidArgument(
            f"column partition is {number} in a row, but {topic} {has}", field="partition", limit=count
        )
    if not count:
        return topic
    if number is None:
        key = None if rows.keys is None else rows.keys[at]
        chosen = rows.values[at] if key is None else key.encode() if isinstance(key, str) else key
        number = partition_of(chosen, count)
    return f"{topic}-partition-{number}"
