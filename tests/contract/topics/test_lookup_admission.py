"""Look-ups and creations of topics at one metadata service: how many work, how many wait, and who is refused."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncelog.core.errors import TooManyRequests
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.metadata.topics.lookup_admission import RETRY_AFTER_S_MAX, LookupAdmission
from oncelog.metadata_store.records.policy_store import CLUSTER
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.metadata_store.session.store_session import Znode
from tests.cluster.metadata.metadata_world import DEADLINE_S, Replica, World
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import FLIGHTS, serving

pytestmark = pytest.mark.asyncio

LOOKUP_PATH = "/lookup/v2/topic/persistent/public/default/flights"


NAMES = paths.namespace_names(parse_namespace("public/default"))


class HeldReads:
    """Holds a replica's reads below a path, of topic names unless told otherwise, until it is told to go on."""

    def __init__(self, replica: Replica, monkeypatch: pytest.MonkeyPatch, below: str = NAMES) -> None:
        self._below = below
        self._read: Callable[..., Awaitable[Znode | None]] = replica.session.read
        self.go = asyncio.Event()
        self.now = self.most = 0
        #: {path: reads}
        self.counts: Counter[str] = Counter()
        monkeypatch.setattr(replica.session, "read", self._held)

    async def _held(self, path: str, **options: Any) -> Znode | None:
        if not path.startswith(self._below):
            return await self._read(path, **options)
        self.counts[path] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            return await self._read(path, **options)
        finally:
            self.now -= 1


def limited(replica: Replica, *, steps_max: int, callers_max: int) -> LookupAdmission:
    """The admission of the replica's look-ups, with these limits."""
    replica.coordination.lookup.admission = LookupAdmission(steps_max=steps_max, callers_max=callers_max)
    return replica.coordination.lookup.admission


async def test_look_ups_beyond_the_limit_are_refused_and_the_others_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients that arrive at once must not give ZooKeeper a thousand times as much to do."""
    async with World.running() as world:
        replica = await world.replica()
        await replica.sees(await world.owner(replica))
        admission, reads = limited(replica, steps_max=2, callers_max=5), HeldReads(replica, monkeypatch)
        waiting = [asyncio.ensure_future(replica.look_up(f"t{number}")) for number in range(5)]
        await until(lambda: admission.callers == 5 and reads.now == 2, DEADLINE_S)
        with pytest.raises(TooManyRequests) as refused:
            await replica.look_up("t5")
        assert refused.value.details["limit"] == 5
        assert refused.value.details["retry_after_s"] in range(1, RETRY_AFTER_S_MAX + 1)
        assert (refused.value.retriable, admission.refused) == (True, 1)
        reads.go.set()
        answers = await asyncio.gather(*waiting)
        assert len({answer.topic_id for answer in answers}) == 5
        assert (reads.most, admission.callers) == (2, 0)
        assert (await replica.look_up("t5")).owner_epoch == 1


async def test_the_rest_interface_shares_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the time to wait as HTTP does."""
    async with serving() as admin:
        await admin.owner()
        admission, reads = limited(admin.replica, steps_max=1, callers_max=1), HeldReads(admin.replica, monkeypatch)
        waiting = asyncio.ensure_future(admin.replica.look_up())
        await until(lambda: reads.now == 1, DEADLINE_S)
        for method, path in (("GET", LOOKUP_PATH), ("PUT", FLIGHTS), ("PUT", f"{FLIGHTS}/partitions")):
            response = await admin.http.request(method, path, json=2)
            assert (response.status_code, response.json()["code"]) == (429, "too_many_requests"), response.text
            assert 1 <= int(response.headers["Retry-After"]) <= RETRY_AFTER_S_MAX
        assert admission.refused == 3
        reads.go.set()
        await waiting


async def test_who_waits_for_an_owner_keeps_nobody_waiting() -> None:
    """Without owners every look-up waits for seconds: what needs no owner goes on."""
    async with World.running() as world:
        replica = await world.replica()
        admission = limited(replica, steps_max=1, callers_max=10)
        waiting = [asyncio.ensure_future(replica.look_up(f"t{number}")) for number in range(3)]
        names = [parse_topic(f"t{number}") for number in range(3)]

        async def created() -> bool:
            return all([await world.topics.find(name) for name in names])

        await until(created, DEADLINE_S)
        assert [(await replica.coordination.lookup.find(name)).partitions for name in names] == [0, 0, 0]
        assert await replica.coordination.lookup.create(parse_topic("t4"))
        assert admission.callers == 3
        await world.owner(replica)
        assert {answer.owner_epoch for answer in await asyncio.gather(*waiting)} == {1}


async def test_equal_look_ups_share_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that arrive while a read of the name is under way are answered by the one after it."""
    async with World.running() as world:
        replica = await world.replica()
        await replica.sees(await world.owner(replica))
        first = await replica.look_up()
        admission, reads = replica.coordination.lookup.admission, HeldReads(replica, monkeypatch)
        waiting = [asyncio.ensure_future(replica.look_up()) for _ in range(50)]
        await until(lambda: admission.callers == 50, DEADLINE_S)
        reads.go.set()
        assert await asyncio.gather(*waiting) == [first] * 50
        assert reads.counts[paths.topic_name(parse_topic("flights"))] == 2


async def test_creations_at_the_same_time_share_the_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a namespace lets topics be created by their first use is read for all of them."""
    async with World.running() as world:
        replica = await world.replica()
        await replica.sees(await world.owner(replica))
        policies = replica.coordination.policies
        reads = HeldReads(replica, monkeypatch, paths.CLUSTER_POLICIES)
        waiting = [asyncio.ensure_future(replica.look_up(f"t{number}")) for number in range(20)]
        await until(lambda: policies._present.waiting(CLUSTER) == 20, DEADLINE_S)
        reads.go.set()
        assert len({answer.topic_id for answer in await asyncio.gather(*waiting)}) == 20
        assert reads.counts[paths.CLUSTER_POLICIES] == 2


class Reads:
    """Reads that each wait for their own event."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Event] = []
        self.ended = 0

    async def read(self, key: str) -> int:
        number, go = len(self.begun), asyncio.Event()
        self.begun.append(go)
        try:
            await go.wait()
        finally:
            self.ended += 1
        if key == "broken":
            raise TooManyRequests(f"read {number}")
        return number


async def test_a_shared_read_begins_after_its_callers() -> None:
    """A read that was under way may show the state before a caller's own change."""
    reads = Reads()
    shared = SharedReads(reads.read)
    first = asyncio.ensure_future(shared.get("a"))
    await until(lambda: len(reads.begun) == 1, DEADLINE_S)
    later = [asyncio.ensure_future(shared.get("a")) for _ in range(3)]
    other = asyncio.ensure_future(shared.get("b"))
    await until(lambda: len(reads.begun) == 2, DEADLINE_S)
    reads.begun[0].set()
    assert await first == 0
    await until(lambda: len(reads.begun) == 3, DEADLINE_S)
    for go in reads.begun:
        go.set()
    assert await asyncio.gather(*later, other) == [2, 2, 2, 1]


async def test_a_failed_read_fails_all_its_callers_and_no_later_one() -> None:
    reads = Reads()
    shared = SharedReads(reads.read)
    callers = [asyncio.ensure_future(shared.get("broken")) for _ in range(3)]
    await until(lambda: len(reads.begun) == 1, DEADLINE_S)
    reads.begun[0].set()
    await until(lambda: len(reads.begun) == 2, DEADLINE_S)
    reads.begun[1].set()
    failures = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(failure) for failure in failures] == ["read 0", "read 1", "read 1"]


async def test_a_read_that_nobody_waits_for_is_ended() -> None:
    """Callers that time out and come again must not leave reads behind."""
    reads = Reads()
    shared = SharedReads(reads.read)
    gone = asyncio.ensure_future(shared.get("a"))
    await until(lambda: len(reads.begun) == 1, DEADLINE_S)
    behind = [asyncio.ensure_future(shared.get("a")) for _ in range(2)]
    await until(lambda: shared.waiting("a") == 3, DEADLINE_S)
    gone.cancel()
    behind[0].cancel()
    await until(lambda: len(reads.begun) == 2, DEADLINE_S)
    assert reads.ended == 1
    reads.begun[1].set()
    assert await behind[1] == 1
    begun_and_ended = asyncio.ensure_future(shared.get("a"))
    begun_and_ended.cancel()
    last = asyncio.ensure_future(shared.get("a"))
    await until(lambda: len(reads.begun) == 3, DEADLINE_S)
    reads.begun[2].set()
    assert await last == 2


async def test_the_time_to_wait_grows_with_the_refused_and_falls_with_the_answered() -> None:
    """Repeats then come no faster than they are answered."""
    now_s = 0.0
    admission = LookupAdmission(steps_max=1, callers_max=10, clock=lambda: now_s)

    async def refusal() -> int:
        with pytest.raises(TooManyRequests) as refused:
            async with admission.caller():
                pass
        return int(refused.value.details["retry_after_s"] or 0)

    async def fill() -> None:
        async with admission.caller():
            await full.wait()

    full = asyncio.Event()
    callers = [asyncio.ensure_future(fill()) for _ in range(10)]
    await until(lambda: admission.callers == 10, DEADLINE_S)
    assert await refusal() == RETRY_AFTER_S_MAX  # nobody was answered: ZooKeeper may be away
    full.set()
    await asyncio.gather(*callers)
    full.clear()
    callers = [asyncio.ensure_future(fill()) for _ in range(10)]
    await until(lambda: admission.callers == 10, DEADLINE_S)
    assert await refusal() == 1  # 10 in the last second, and 12 to come
    for _ in range(38):
        await refusal()
    assert await refusal() == 5
    now_s = 1.5
    assert await refusal() == 5  # the second before counts too
    now_s = 4.0
    assert await refusal() == RETRY_AFTER_S_MAX
    full.set()
    await asyncio.gather(*callers)
