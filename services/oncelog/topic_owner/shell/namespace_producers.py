"""How many producers the topics of each namespace have at this owner, for their cap."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: Thousands of producers may open within a second, at an owner of thousands of topics: one count serves all of them.
COUNTED_EVERY_S = 1.0


class NamespaceProducers:
    """Counts all topics at once."""

    def __init__(
        self, runners: Callable[[], Iterable[TopicRunner]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runners = runners
        self._clock = clock
        self._counted_s: float | None = None
        #: {namespace: producers}, {topic id: producers}
        self._of_namespace: Counter[str] = Counter()
        self._of_topic: dict[str, int] = {}

    def elsewhere(self, runner: TopicRunner) -> int:
        """Those of the namespace's other topics, as they were at most COUNTED_EVERY_S ago."""
        now_s = self._clock()
        if self._counted_s is None or now_s - self._counted_s >= COUNTED_EVERY_S:
            self._counted_s = now_s
            self._count()
        return self._of_namespace[_namespace_of(runner)] - self._of_topic.get(runner.topic_id, 0)

    def share_max(self) -> float:
        """The highest share of a cap that a topic or a namespace uses, now. 1: it gets no new producer."""
        self._count()
        return max(
            (
                caps.share(self._of_topic[runner.topic_id], self._of_namespace[_namespace_of(runner)])
                for runner in self._runners()
                if (caps := runner.core.policies.caps) is not None
            ),
            default=0.0,
        )

    def _count(self) -> None:
        self._of_namespace.clear()
        self._of_topic.clear()
        for runner in self._runners():
            serving = runner.core.serving
            count = 0 if serving is None else serving.openings.producers_count
            self._of_topic[runner.topic_id] = count
            self._of_namespace[_namespace_of(runner)] += count


def _namespace_of(runner: TopicRunner) -> str:
    """Empty while the topic's record is not read."""
    return runner.name.rpartition("/")[0]
