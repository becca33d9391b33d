"""One question about many topics: one call of each owner, and each topic is asked for until it has an answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.network.topic_calls import AskedTopic, ask_owners
from oncelog.core.errors import (
    ConsumerBusy,
    ConsumerFenced,
    DeadlineExceeded,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.names import TopicName, parse_topic

pytestmark = pytest.mark.asyncio

PATIENT_MS = 60_000


class Cluster:
    """In the place of `Network`. owners: {topic: the address of its owner}; a topic without one does not exist."""

    def __init__(self, **owners: str) -> None:
        self.owners = {parse_topic(name): address for name, address in owners.items()}
        self.epochs = OwnerEpochs()
        self.epochs_of_calls: list[int] = []
        self.before_call: Callable[[], None] = lambda: None
        self.looked_up: list[tuple[str, bool]] = []
        self.look_up_errors: list[OncelogError] = []
        #: what each call was about: (address, topics)
        self.calls: list[tuple[str, list[str]]] = []
        #: {topic: what it answers before its name}
        self.errors: dict[str, list[OncelogError]] = {}
        self.call_errors: list[OncelogError] = []

    async def route(self, topic: TopicName, *, fresh: bool, create: bool) -> Route:
        self.looked_up.append((topic.local, fresh))
        if self.look_up_errors:
            raise self.look_up_errors.pop(0)
        if topic not in self.owners:
            raise TopicNotFound(f"{topic} does not exist")
        address = self.owners[topic]
        return Route(TopicId(topic.local), address, OwnerEpoch(1), Incarnation(address))

    async def ask(self, route: Route, topics: Sequence[AskedTopic]) -> list[tuple[int, str | OncelogError]]:
        names = [each.name.local for each in topics]
        self.calls.append((route.address, names))
        self.before_call()
        epoch = self.epochs_of_calls.pop(0) if self.epochs_of_calls else 1
        if self.call_errors:
            raise self.call_errors.pop(0)
        return [(epoch, self.errors[n].pop(0) if self.errors.get(n) else n) for n in names]

    async def asked(
        self, *names: str, timeout_ms: int = PATIENT_MS, topics_max: int = 10
    ) -> dict[str, str | OncelogError]:
        found = await ask_owners(
            cast("Network", self), map(parse_topic, names), self.ask, timeout_ms=timeout_ms, topics_max=topics_max,
            final=(ConsumerBusy,),
        )  # fmt: skip
        return {topic.local: result for topic, result in found.items()}


async def test_each_owner_gets_one_call() -> None:
    """Of at most so many topics; the results are in the order of the topics."""
    cluster = Cluster(a="one", b="two", c="one", d="one")
    assert list((await cluster.asked("c", "b", "a", "d", topics_max=2)).items()) == [(n, n) for n in "cbad"]
    assert sorted(cluster.calls) == [("one", ["c", "a"]), ("one", ["d"]), ("two", ["b"])]


async def test_only_what_may_pass_is_asked_again() -> None:
    """By a fresh look-up; a topic whose refusal is final, or that does not exist, is done."""
    cluster = Cluster(a="one", b="one", c="one", d="one")
    cluster.errors = {"a": [NotOwner("moved")] * 2, "b": [ConsumerFenced("no")], "c": [ConsumerBusy("used")]}
    found = await cluster.asked("a", "b", "c", "d", "e")
    assert (found["a"], found["d"]) == ("a", "d")
    kinds = [type(found[name]) for name in "bce"]
    assert kinds == [ConsumerFenced, ConsumerBusy, TopicNotFound]
    assert [names for _, names in cluster.calls] == [["a", "b", "c", "d"], ["a"], ["a"]]
    assert cluster.looked_up[5:] == [("a", True)] * 2


async def test_failed_call_and_failed_look_up_are_repeated() -> None:
    cluster = Cluster(a="one", b="one")
    cluster.call_errors = [ServiceUnavailable("away")]
    cluster.look_up_errors = [ServiceUnavailable("no service")]
    assert await cluster.asked("a", "b") == {"a": "a", "b": "b"}


async def test_answer_of_a_deposed_owner_is_not_believed() -> None:
    """A higher epoch was seen: the topic is asked for again."""
    cluster = Cluster(a="one")
    cluster.epochs.learn(TopicId("a"), OwnerEpoch(2))
    cluster.epochs_of_calls = [1, 2]
    assert await cluster.asked("a") == {"a": "a"}
    assert len(cluster.calls) == 2


async def test_time_ends_for_what_has_no_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the last error; what was answered stays."""
    cluster, limits, timeout = Cluster(a="one", b="two"), list[asyncio.Timeout](), asyncio.timeout

    def limit(_delay: float | None) -> asyncio.Timeout:
        limits.append(timeout(None))
        return limits[-1]

    def time_is_over() -> None:
        if len(cluster.calls) == 5:
            limits[0].reschedule(asyncio.get_running_loop().time())

    cluster.errors = {"a": [ServiceUnavailable("away")] * 10}
    cluster.before_call = time_is_over
    monkeypatch.setattr(asyncio, "timeout", limit)
    found = await cluster.asked("a", "b")
    assert found["b"] == "b"
    assert isinstance(found["a"], ServiceUnavailable)


async def test_topic_that_nothing_has_answered_is_late() -> None:
    """Whether it was done is not known."""
    assert isinstance((await Cluster(a="one").asked("a", timeout_ms=0))["a"], DeadlineExceeded)
