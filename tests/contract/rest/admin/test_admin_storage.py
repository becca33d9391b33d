"""REST about storage: nodes, ledgers in pages, verification, replacement, decommission, repair on request."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import RepairProgress, RepairStore, StuckRepair
from oncelog.metadata_store.records.topic_store import TopicStore
from tests.cluster.until import until
from tests.contract.repair.fake_storage_node import FakeStorageNode
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving
from tests.contract.storage_client.ledger_world import adds_of, whole, writer_of

pytestmark = pytest.mark.asyncio

STORAGE = "/admin/v2/storage"
LEDGERS = f"{STORAGE}/ledgers"
ENTRIES = 20
DEADLINE_S = 30.0


@dataclass
class Served:
    """Three storage nodes; the topic flights has the closed ledgers 1 to 4, and 5 is open."""

    admin: Admin
    nodes: list[FakeStorageNode]

    def node(self, number: int) -> str:
        return f"{STORAGE}/nodes/{self.nodes[number].incarnation}"

    async def may_be_replaced(self, node: str) -> dict[str, Any]:
        """The answer, once every other node has answered in time."""

        async def allowed() -> dict[str, Any]:
            answer: dict[str, Any] = await self.admin.get(f"{node}/may-replace")
            return answer if answer["may_replace"] else {}

        return await until(allowed, DEADLINE_S, waiting_for=f"{node} to be replaceable")

    async def ids(self, query: str = "") -> list[int]:
        page = await self.admin.get(f"{LEDGERS}?{query}")
        return [one["ledger_id"] for one in page["ledgers"]]


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as admin, three_nodes(admin) as nodes:
        yield Served(admin, nodes)


@asynccontextmanager
async def three_nodes(admin: Admin) -> AsyncIterator[list[FakeStorageNode]]:
    """See `Served`."""
    async with AsyncExitStack() as stack:
        session = await admin.world.session()
        nodes = [FakeStorageNode(Incarnation(name * 32), session) for name in "abc"]
        registry = Registry(session)
        for node in nodes:
            await stack.enter_async_context(node.serving())
            await node.register()
            assert node.record is not None
            cookie = StorageCookie(node.incarnation, "127.0.0.1", node.record.port)
            await registry.write_cookie(cookie, version=ABSENT_VERSION)
        await admin.owner()
        await admin.change("PUT", FLIGHTS)
        await _fill(nodes)
        yield nodes


async def _fill(nodes: list[FakeStorageNode]) -> None:
    session = nodes[0].session
    topics, ledgers = TopicStore(session), LedgerStore(session)
    found = await topics.find(parse_topic("flights"))
    assert found is not None
    topic_id = found.value.topic_id
    for number in range(1, 6):
        metadata = LedgerMetadata(LedgerId(number), topic_id, tuple(node.incarnation for node in nodes), 2)
        adds = whole(adds_of(writer_of(metadata), ENTRIES))
        for node in nodes:
            node.copies[LedgerId(number)] = dict(adds)
        closed = metadata.closed(end=EntryId(ENTRIES - 1), length=1).mark_verified()
        assert (
            await ledgers.write(metadata if number == 5 else closed, version=ABSENT_VERSION)
        ).status is WriteStatus.OK
    stored = await topics.read(topic_id)
    assert stored is not None
    links = tuple(LedgerLink(LedgerId(number), (number - 1) * ENTRIES) for number in range(1, 6))
    await topics.write(replace(stored.value, ledgers=links), version=stored.version)


async def test_an_older_look_is_enough_until_a_node_is_changed_here(served: Served) -> None:
    """The pages of the console share one look. What an operator has just done shows all the same."""

    async def states() -> list[tuple[str, bool]]:
        nodes = await served.admin.get(f"{STORAGE}/nodes?seen_within_s=60")
        return [(node["state"], node["read_only"]) for node in nodes]

    assert await states() == [("live", False)] * 3
    await served.nodes[2].leave()
    assert await states() == [("live", False)] * 3
    mark = f"/admin/v2/storage-nodes/{served.nodes[0].incarnation}/read-only"
    await served.admin.change("PUT", mark)
    assert await states() == [("live", True), ("live", False), ("away", False)]
    await served.admin.change("DELETE", mark)
    assert await states() == [("live", False), ("live", False), ("away", False)]
    await served.admin.change("POST", f"{served.node(0)}/decommission", json={})
    assert (await states())[0] == ("draining", True)
    await served.admin.change("DELETE", f"{served.node(0)}/decommission")
    assert (await states())[0] == ("live", False)


async def test_nodes_are_listed_with_their_copies(served: Served) -> None:
    """Also those that are away."""
    await served.nodes[2].leave()
    served.nodes[1].damaged.add(LedgerId(3))
    a, b, c = await served.admin.get(f"{STORAGE}/nodes")
    assert [one["state"] for one in (a, b, c)] == ["live", "live", "away"]
    assert [one["ledgers"] for one in (a, b, c)] == [5, 5, 5]
    assert [one["damaged_ledgers"] for one in (a, b, c)] == [0, 1, None]
    assert [one["verified_ms"] is None for one in (a, b, c)] == [False, False, True]


async def test_ledgers_of_a_topic_are_listed_in_their_order_without_its_owner(served: Served) -> None:
    """The newest ones with their copies, and what comes before them as one sum. No owner has served the topic."""
    admin, path = served.admin, f"{FLIGHTS}/ledgers"
    shown = await admin.get(f"{path}?limit=2")
    assert shown["ledger_count"] == 5
    assert shown["older"] == {"ledgers": 3, "first_index": 0, "next_index": 60, "bytes": 3}
    assert [(one["ledger_id"], one["first_index"], one["next_index"]) for one in shown["ledgers"]] == [
        (4, 60, 80), (5, 80, None),
    ]  # fmt: skip
    closed, is_open = shown["ledgers"]
    assert {name: closed[name] for name in ("state", "health", "copies", "write_quorum", "entries", "bytes")} == {
        "state": "closed", "health": "ok", "copies": 3, "write_quorum": 3, "entries": ENTRIES, "bytes": 1,
    }  # fmt: skip
    assert (is_open["state"], is_open["entries"], is_open["bytes"]) == ("open", None, None)
    assert (await admin.get(path))["older"] is None
    await served.nodes[2].leave()

    async def noticed() -> bool:
        newest: dict[str, Any] = (await admin.get(path))["ledgers"][3]
        return (newest["copies"], newest["health"]) == (2, "under-replicated")

    await until(noticed, DEADLINE_S)
    assert (await admin.get(f"{FLIGHTS}/stats"))["phase"] == "unowned"
    await admin.refused("GET", f"{path}?limit=0", 422, "invalid_argument")


async def test_ledgers_are_listed_in_pages_and_by_state(served: Served) -> None:
    """A page names where the next one begins."""
    admin = served.admin
    first = await admin.get(f"{LEDGERS}?limit=2")
    assert [one["ledger_id"] for one in first["ledgers"]] == [1, 2]
    assert first["next_after"] == 2
    assert first["ledgers"][0] == {
        "ledger_id": 1,
        "topic": "public/default/flights",
        "state": "closed",
        "health": "ok",
        "copies": 3,
        "write_quorum": 3,
        "entries": ENTRIES,
    }
    assert await served.ids("after=4") == [5]
    assert await served.ids("topic=flights&after=3") == [4, 5]
    assert await served.ids("state=under-replicated") == []
    await served.nodes[2].leave()
    assert await served.ids("state=under-replicated&seen_within_s=60") == [], "the look before is enough"
    assert await served.ids("state=under-replicated") == [1, 2, 3, 4, 5]
    assert await served.ids("state=unavailable") == []
    await served.nodes[1].leave()
    assert await served.ids("state=unavailable") == [5], "one of three nodes cannot close an open ledger"
    await served.nodes[0].leave()
    assert await served.ids("state=unavailable") == [1, 2, 3, 4, 5]
    shown = await admin.get(f"{LEDGERS}/1")
    assert shown["health"] == "unavailable"
    assert shown["unavailable"] == [{"first": 0, "last": ENTRIES - 1}]
    assert shown["waiting_for"] == [node.incarnation for node in served.nodes]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("ledgers?limit=1001", 422, "invalid_argument"),
        ("ledgers?limit=0", 422, "invalid_argument"),
        ("ledgers?state=broken", 422, "invalid_argument"),
        ("ledgers?topic=a/b/c/d/e", 412, "invalid_name"),
        # The storage nodes of this world prove no era: the topic may be in a newer ZooKeeper.
        ("ledgers?topic=nothing", 503, "service_unavailable"),
        ("ledgers/99", 404, "not_found"),
        ("ledgers/-1", 422, "invalid_argument"),
        (f"nodes/{'9' * 32}/may-replace", 404, "not_found"),
        ("nodes/xyz/may-replace", 422, "invalid_argument"),
    ],
)
async def test_invalid_request_is_refused(served: Served, path: str, status: int, code: str) -> None:
    """With the field, and what to do."""
    await served.admin.refused("GET", f"{STORAGE}/{path}", status, code)


async def test_verification_reads_every_copy(served: Served) -> None:
    """What a node lacks or cannot read is counted, and differing copies are found."""
    served.nodes[1].unreadable[LedgerId(1)] = {EntryId(3)}
    del served.nodes[2].copies[LedgerId(1)][EntryId(4)]
    answer = await served.admin.http.post(f"{LEDGERS}/1/verify")
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    assert (report["first_entry"], report["next_entry"], report["done"]) == (0, ENTRIES, True)
    counts = [(one["sound"], one["missing"], one["unreadable"]) for one in report["copies"]]
    assert counts == [(ENTRIES, 0, 0), (ENTRIES - 1, 0, 1), (ENTRIES - 1, 1, 0)]
    assert report["differing_entry"] is None
    await served.admin.refused("POST", f"{LEDGERS}/5/verify", 503, "service_unavailable")


async def test_ledger_shows_when_each_copy_was_last_verified(served: Served) -> None:
    """By its scrubber; the ledger has the earliest time, once every copy has one. The nodes' own passes do not count:
    a new ledger is not read by a pass that has ended."""
    for number, node in enumerate(served.nodes):
        node.verified_ms_ago = {LedgerId(1): 60_000 * (number + 1)}
    del served.nodes[2].verified_ms_ago[LedgerId(1)]
    shown = await served.admin.get(f"{LEDGERS}/1")
    a, b, c = (copy["verified_ms"] for copy in shown["copies"])
    assert 59_000 < a - b < 61_000
    assert (c, shown["verified_ms"]) == (None, None)
    served.nodes[2].verified_ms_ago[LedgerId(1)] = 0
    shown = await served.admin.get(f"{LEDGERS}/1")
    assert shown["verified_ms"] == min(copy["verified_ms"] for copy in shown["copies"])
    other = await served.admin.get(f"{LEDGERS}/2")
    assert [copy["verified_ms"] for copy in other["copies"]] == [None, None, None]


async def test_node_may_be_replaced_while_the_others_have_everything(served: Served) -> None:
    """The reasons name the ledgers."""
    assert await served.may_be_replaced(served.node(0)) == {
        "may_replace": True,
        "incarnation": served.nodes[0].incarnation,
        "reasons": [],
    }
    await served.nodes[1].leave()
    refused = await served.admin.get(f"{served.node(0)}/may-replace")
    assert not refused["may_replace"]
    assert refused["reasons"][0] == f"ledger 1: its other members {'b' * 32} are not registered, or were replaced"


@pytest.mark.parametrize("fault", ["killed", "another incarnation at its address"])
async def test_node_is_not_replaced_while_another_is_registered_and_does_not_answer(served: Served, fault: str) -> None:
    """A registration outlives its process until the session ends."""
    await served.may_be_replaced(served.node(0))
    b, path_of_b = served.nodes[1], served.node(1)
    if fault == "killed":
        assert b.server is not None
        await b.server.stop(grace_ms=0)
    else:
        b.incarnation = Incarnation("d" * 32)
    refused = await served.admin.get(f"{served.node(0)}/may-replace")
    assert not refused["may_replace"]
    assert refused["reasons"][0].startswith(f"ledger 1: its other members {'b' * 32}")
    assert refused["reasons"][0].endswith(" are registered, and do not answer")
    assert (await served.may_be_replaced(path_of_b))["reasons"] == []


@pytest.mark.hazard("too-few-nodes")
async def test_decommission_below_the_write_quorum_is_refused(served: Served) -> None:
    """With three nodes and a write quorum of three, no ledger could be opened afterwards."""
    owner = next(iter(served.admin.replica.coordination.owners.live))
    assert owner.write_quorum == 1
    await served.admin.change("POST", f"{served.node(2)}/decommission")
    [*_, c] = await served.admin.get(f"{STORAGE}/nodes")
    assert (c["state"], c["read_only"]) == ("draining", True)
    assert c["waits_for"][0] == "ledger 1 of public/default/flights: no other storage node can take its copy"
    assert c["waits_for"][4].startswith("ledger 5 of public/default/flights: it is open")
    assert [one["waits_for"] for one in (await served.admin.get(f"{STORAGE}/nodes"))[:2]] == [[], []]
    await served.admin.change("DELETE", f"{served.node(2)}/decommission")
    await served.nodes[0].leave()
    await served.nodes[1].leave()
    problem = await served.admin.refused("POST", f"{served.node(2)}/decommission", 409, "conflict")
    assert "0 other storage nodes are left, and a ledger needs 1" in problem["detail"]


async def test_retired_node_is_listed_until_it_is_emptied(served: Served) -> None:
    """It still matters then: its copies are missing elsewhere. So it does until it is known to be emptied. Afterwards
    only a caller that asks for all sees it."""
    registry = Registry(served.admin.replica.session)
    former, recent = Incarnation("e" * 32), Incarnation("f" * 32)
    await registry.write_cookie(StorageCookie(former, "10.0.0.9", 6660, retired=True, emptied=True), version=-1)
    await registry.write_cookie(StorageCookie(recent, "10.0.0.8", 6660, retired=True), version=-1)
    a = served.nodes[0].incarnation
    stored = await registry.read_cookie(a)
    assert stored is not None
    await registry.write_cookie(replace(stored.value, retired=True), version=stored.version)
    await served.nodes[0].leave()
    listed = {node["incarnation"]: node for node in await served.admin.get(f"{STORAGE}/nodes")}
    assert (listed[a]["state"], listed[a]["ledgers"] > 0) == ("retired", True)
    assert (listed[recent]["ledgers"], listed[recent]["emptied"]) == (0, False)
    assert former not in listed
    every = {node["incarnation"]: node for node in await served.admin.get(f"{STORAGE}/nodes?all=true")}
    assert every.keys() == {*listed, former}
    assert every[former]["emptied"]


async def test_open_ledger_is_not_repaired(served: Served) -> None:
    """Its owner writes to it."""
    problem = await served.admin.refused("POST", f"{STORAGE}/repair/5", 409, "conflict")
    assert "once its topic owner has closed it" in problem["detail"]
    await served.admin.refused("POST", f"{STORAGE}/repair/99", 404, "not_found")
    await served.admin.change("POST", f"{STORAGE}/repair/1")
    assert (await served.admin.get(f"{STORAGE}/repair"))["status"] == "none", "no replica is elected here"


async def test_progress_of_repair_costs_no_look_at_the_cluster_unless_a_name_is_missing(served: Served) -> None:
    """A look asks every storage node and reads the records that have changed; the overview of the console asks for the
    progress each few seconds."""
    watch = served.admin.replica.coordination.repair.watch
    store = RepairStore(served.nodes[0].session)
    await store.write(RepairProgress(updated_ms=1, under_replicated=5))
    assert (await served.admin.get(f"{STORAGE}/repair"))["under_replicated_ledgers"] == 5
    assert not watch.seen.live
    topic_id = (await served.admin.world.record()).topic_id
    await store.write(RepairProgress(updated_ms=2, stuck=(StuckRepair(LedgerId(1), topic_id, "no copy", 1),)))
    (stuck,) = (await served.admin.get(f"{STORAGE}/repair"))["stuck"]
    assert stuck["topic"] == "public/default/flights"
    assert watch.seen.live
