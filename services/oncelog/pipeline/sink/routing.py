"""Where each row goes: to which topic, and to which of its parts. Pure.

Rules
- The topic is the option `topic`; with destination=columns and without that option, it is the row's column `topic`.
- With destination=columns the row's column `partition` names the part, where it is not null (nor -1).
- Otherwise the part is that of the row's key (`core.routing`), and of its value where it has no key. Both are functions
  of the row and of the number of parts, so that a retry routes it the same way.
- The number of parts is looked up once for a task. What was routed with it is stored with it, in a claim or with the
  attempt: a retry after the topic got further parts routes the same rows by the number of then.
"""

from collections.abc import Callable, Mapping, Sequence

from oncelog.core.errors import InvalidArgument
from oncelog.core.producer.routing import partition_of
from oncelog.pipeline.sink.rows import Rows

#: {full name of a topic: number of its parts, 0: it has none}
Routes = Mapping[str, int]


class Router:
    """Looks up the number of parts of each topic once. target: of all rows, None: each row names its own."""

    def __init__(self, target: str | None, partitions_of: Callable[[str], int]) -> None:
        self.target = target
        self._partitions_of = partitions_of
        self._known: dict[str, int] = {}

    def routes_for(self, rows: Rows) -> dict[str, int]:
        """Of the topics that these rows go to."""
        topics = [self.target] if self.target is not None else dict.fromkeys(rows.topics or ())
        return {topic: self.parts_of(topic) for topic in topics}

    def parts_of(self, topic: str) -> int:
        """0: the topic has none."""
        if topic not in self._known:
            self._known[topic] = self._partitions_of(topic)
        return self._known[topic]


def spread(rows: Rows, target: str | None, routes: Routes) -> dict[str, Sequence[int]]:
    """{destination: the rows that go there, ascending}; a destination is a topic without parts, or a part.

    Raises InvalidArgument for a part that is not there.
    """
    if target is not None and not routes[target] and rows.partitions is None:
        return {target: range(len(rows))}
    found: dict[str, list[int]] = {}
    topics = [target] * len(rows) if target is not None else rows.topics or ()
    for at, topic in enumerate(topics):
        if topic is None:
            raise InvalidArgument("column topic is null in a row: destination=columns needs it", field="topic")
        found.setdefault(_destination(rows, at, topic, routes[topic]), []).append(at)
    return dict(found)


def _destination(rows: Rows, at: int, topic: str, count: int) -> str:
    number = None if rows.partitions is None else rows.partitions[at]
    if number is not None and number >= count:
        has = f"has {count} parts" if count else "has no parts"
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
