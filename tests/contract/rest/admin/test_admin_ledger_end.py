"""An operator ends a ledger: only one that holds up its topic, only with a confirmation, and with a line in the log."""

from dataclasses import replace

import pytest

from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS, LedgerLink
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.runtime.observing.events import EventKind
from oncelog.wire import owner_pb2
from tests.contract.noted import noted
from tests.contract.rest.admin.admin_world import Admin, serving

pytestmark = pytest.mark.asyncio
A, B, C = (Incarnation(letter * 32) for letter in "abc")
LEDGER = LedgerId(7)
GIVEN_UP = "a ledger is ended: {} that only lost nodes hold are given up"
PATH = f"/admin/v2/storage/ledgers/{LEDGER}/end"


async def stuck_topic(admin: Admin, *registered: Incarnation) -> LedgerMetadata:
    """A topic whose log ends with an open ledger on A, B and C, of which some are registered."""
    topics, ledgers = admin.replica.coordination.topics, admin.replica.coordination.ledgers
    created = await topics.create(parse_topic("public/default/flights"))
    topic_id: TopicId = created.name.value.topic_id
    record = LedgerMetadata(LEDGER, topic_id, (A, B, C), 2)
    assert (await ledgers.write(record, version=ABSENT_VERSION)).status is WriteStatus.OK
    stored = await topics.read(topic_id)
    assert stored is not None
    await topics.write(replace(stored.value, ledgers=(LedgerLink(LEDGER, 0),)), version=stored.version)
    for number, node in enumerate(registered):
        live = LiveStorageNode(node, "127.0.0.1", 6660 + number, 99)
        await Registry(admin.replica.session).register_storage_node(live).establish()
    return record


@pytest.mark.hazard("open-ledger-without-quorum")
async def test_ledger_with_one_live_member_is_ended() -> None:
    """The record names who is gone; the topic's owner does the rest. The command is repeatable."""
    async with serving() as admin:
        record = await stuck_topic(admin, A)
        for _ in range(2):
            response = await admin.http.post(PATH, params={"confirm": "true"})
            assert response.status_code == 200, response.text
            assert response.json() == {"ledger_id": LEDGER, "gone": [B, C], "survivors": [A]}
        stored = await admin.replica.coordination.ledgers.read(LEDGER)
        assert stored is not None
        assert stored.value == record.give_up((B, C), by="unauthenticated")
        ended = noted(admin.replica.coordination.events, EventKind.COPY_LOST)[0]
        assert (ended.topic, ended.message) == ("public/default/flights", GIVEN_UP.format("messages"))
        assert ended.fields == {"ledger_id": LEDGER, "closed": False, "by": "unauthenticated", "nodes": f"{B}, {C}"}


@pytest.mark.hazard("open-ledger-without-quorum")
async def test_end_needs_a_confirmation() -> None:
    async with serving() as admin:
        record = await stuck_topic(admin, A)
        problem = await admin.refused("POST", PATH, 422, "invalid_argument")
        assert "acknowledged messages may be lost" in problem["detail"]
        stored = await admin.replica.coordination.ledgers.read(LEDGER)
        assert stored is not None
        assert stored.value == record


@pytest.mark.hazard("open-ledger-without-quorum")
async def test_ledger_that_can_be_recovered_is_refused_with_the_reason() -> None:
    async with serving() as admin:
        await stuck_topic(admin, A, B)
        problem = await admin.refused("POST", PATH, 409, "conflict", params={"confirm": "true"})
        assert "2 are enough to recover it" in problem["detail"]


async def test_other_ledgers_are_refused() -> None:
    """One that no log ends with, and one that does not exist."""
    async with serving() as admin:
        record = await stuck_topic(admin)
        ledgers = admin.replica.coordination.ledgers
        unlisted = replace(record, ledger_id=LedgerId(8))
        assert (await ledgers.write(unlisted, version=ABSENT_VERSION)).status is WriteStatus.OK
        path = "/admin/v2/storage/ledgers/8/end"
        problem = await admin.refused("POST", path, 409, "conflict", params={"confirm": "true"})
        assert "not the last ledger" in problem["detail"]
        await admin.refused(
            "POST", "/admin/v2/storage/ledgers/9/end", 404, "ledger_not_found", params={"confirm": "true"}
        )


@pytest.mark.hazard("open-ledger-without-quorum")
async def test_ledger_of_an_ack_log_is_ended() -> None:
    """The line in the log says that acknowledgements are given up, not messages."""
    async with serving() as admin:
        record = await stuck_topic(admin, A)
        topics = admin.replica.coordination.topics
        stored = await topics.read(record.topic_id)
        assert stored is not None
        of_acks = replace(stored.value, ledgers=(), acks=(LEDGER,), format=FORMAT_WITH_HEADS)
        await topics.write(of_acks, version=stored.version)
        response = await admin.http.post(PATH, params={"confirm": "true"})
        assert response.json() == {"ledger_id": LEDGER, "gone": [B, C], "survivors": [A]}
        (ended,) = noted(admin.replica.coordination.events, EventKind.COPY_LOST)
        assert ended.message == GIVEN_UP.format("acknowledgements")


@pytest.mark.hazard("lost-too-early")
async def test_lost_entries_of_a_closed_ledger_are_given_up() -> None:
    """It need not be the last one of the log. A closed ledger of which nothing can be lost is refused."""
    async with serving() as admin:
        record = await stuck_topic(admin, A, B, C)
        ledgers, topics = admin.replica.coordination.ledgers, admin.replica.coordination.topics
        stored, topic = await ledgers.read(LEDGER), await topics.read(record.topic_id)
        assert stored is not None
        assert topic is not None
        longer = replace(topic.value, ledgers=(*topic.value.ledgers, LedgerLink(LedgerId(8), 3)))
        await topics.write(longer, version=topic.version)
        closed = record.in_recovery().closed(end=EntryId(2), length=9)
        await ledgers.write(closed, version=stored.version)
        problem = await admin.refused("POST", PATH, 409, "conflict", params={"confirm": "true"})
        assert "wait for the repair" in problem["detail"]
        lost = closed.mark_lost([EntryRange(EntryId(1), EntryId(1))])
        await ledgers.write(lost, version=stored.version + 1)
        response = await admin.http.post(PATH, params={"confirm": "true"})
        assert response.json() == {"ledger_id": LEDGER, "gone": [], "survivors": [A, B, C]}
        stored = await ledgers.read(LEDGER)
        assert stored is not None
        assert stored.value == lost.give_up_entries((), by="unauthenticated")
        (ended,) = noted(admin.replica.coordination.events, EventKind.COPY_LOST)
        assert (ended.fields["closed"], ended.fields["nodes"]) == (True, f"{A}, {B}, {C}")


@pytest.mark.hazard("open-ledger-without-quorum")
@pytest.mark.parametrize("phase", ["serving", "recovering"])
async def test_ledger_of_a_served_topic_is_not_ended(phase: str) -> None:
    """Its owner still gets acknowledgements: the storage nodes have lost only their sessions with ZooKeeper."""
    async with serving() as admin:
        record = await stuck_topic(admin, A)
        owner = await admin.owner()
        owner.states = [owner_pb2.TopicState(topic_id=record.topic_id, phase=phase)]
        topics = admin.replica.coordination.topics
        stored = await topics.read(record.topic_id)
        assert stored is not None
        await topics.write(stored.value.placed_on(owner.incarnation), version=stored.version)
        if phase == "serving":
            problem = await admin.refused("POST", PATH, 409, "conflict", params={"confirm": "true"})
            assert "is served" in problem["detail"]
        else:
            response = await admin.http.post(PATH, params={"confirm": "true"})
            assert response.status_code == 200, response.text
