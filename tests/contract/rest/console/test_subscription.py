"""The page of a subscription and its actions: figures of REST, and what would be lost before it is."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.access import Right
from oncelog.core.errors import Conflict, OncelogError, SubscriptionNotFound
from oncelog.core.names import parse_namespace
from oncelog.metadata_store.records.policies import Policies
from oncelog.rpc.codecs.inspection_codec import DESCRIBE_ACK_STATE, PREVIEW_SEEK
from oncelog.rpc.codecs.subscription_codec import CHANGE_SUBSCRIPTION, DESCRIBE_SUBSCRIPTIONS
from oncelog.wire import inspection_pb2, owner_pb2
from oncelog.wire import subscriptions_pb2 as pb
from tests.cluster.metadata.metadata_world import FakeOwner
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, block_of, confirmed, seen_of, serving, text_of
from tests.contract.rest.console.served_console import served_console
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio

NAME = "public/default/flights"
PAGE = f"/console/topics/{NAME}/subscriptions/billing"
CONSUMER = {
    "consumer_name": "<b>till</b>", "priority": 0, "active": False, "unacked_messages": 3, "msg_out_counter": 9,
    "msg_redeliver_counter": 2, "available_permits": 47, "role": "clerk", "connected_from": "10.0.0.7:5000",
    "since_ms": 1_000, "lowest_held": 41, "held_since_ms": 2_000,
}  # fmt: skip
STATISTICS: dict[str, Any] = {
    "type": "shared", "msg_backlog": 7, "backlog_size": 2048, "oldest_unacked_ms": 1_000, "unacked_messages": 3,
    "mark_delete": 41, "seek_epoch": 2, "msg_out_counter": 9, "msg_redeliver_counter": 2, "redelivered_messages": 1,
    "pending_dead_letters": 1, "dead_letters_wait_for": "topic x is full", "ack_state_bytes": 10, "ack_ranges": 2,
    "is_blocked_on_ack_state_persistent": True, "blocked": {"reason": "ranges", "since_ms": 3, "lowest_hole": 41,
    "holder": "till"}, "holds_publishing_since_ms": None, "active_consumer": None, "generation": 0, "effects": None,
    "role": None, "properties": {}, "consumer_count": 1, "consumers": [CONSUMER],
}  # fmt: skip
HOLE = {
    "first": 41, "last": 43, "holder": "<b>till</b>", "held_since_ms": 2_000, "delivery_count": 4,
    "delayed_until_ms": None, "pending_dead_letter": False,
}  # fmt: skip
ACKS = {
    "first": 41, "next": 61, "topic_first": 0, "bucket_messages": 10, "hole_count": 2, "holes": [HOLE],
    "buckets": [{"acknowledged": 10, "in_flight": 0}, {"acknowledged": 2, "in_flight": 3}], "dead_letter_topic": None,
}  # fmt: skip


@dataclass
class Subscribed:
    """A topic with subscription billing at an owner, which notes what is changed."""

    browser: Browser
    owner: FakeOwner
    changes: list[pb.ChangeSubscriptionRequest] = field(default_factory=list)
    error: OncelogError | None = None
    described: int = 0
    statistics: dict[str, Any] | None = field(default_factory=lambda: STATISTICS)

    async def change(self, request: pb.ChangeSubscriptionRequest) -> pb.ChangeSubscriptionAnswer:
        if self.error is not None:
            raise self.error
        self.changes.append(request)
        return pb.ChangeSubscriptionAnswer()

    async def describe(self, request: pb.DescribeSubscriptionsRequest) -> pb.DescribeSubscriptionsAnswer:
        self.described += 1
        if request.subscription != "billing" or self.statistics is None:
            raise SubscriptionNotFound(f"the topic has no subscription {request.subscription}")
        return pb.DescribeSubscriptionsAnswer(statistics_json=json.dumps(self.statistics))

    async def acks(self, request: inspection_pb2.AckStateRequest) -> inspection_pb2.InspectionAnswer:
        return inspection_pb2.InspectionAnswer(json=json.dumps(ACKS))

    async def preview(self, request: inspection_pb2.PreviewSeekRequest) -> inspection_pb2.InspectionAnswer:
        place = {"index": 5, "delivered_again": 1_234, "left_out": 1, "first_index": 0, "next_index": 61}
        return inspection_pb2.InspectionAnswer(json=json.dumps(place))

    async def place(self) -> None:
        """Let the owner serve the topic."""
        admin = self.browser.admin
        await admin.replica.look_up(NAME)
        stats = {"message_count": 61, "subscriptions": {"billing": STATISTICS}}
        topic_id = (await admin.world.record()).topic_id
        self.owner.states = [owner_pb2.TopicState(topic_id=topic_id, phase="serving", stats_json=json.dumps(stats))]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[Subscribed]:
    async with serving(secured(tmp_path)) as browser:
        owner = await browser.admin.owner()
        found = Subscribed(browser, owner)
        owner.server.unary(CHANGE_SUBSCRIPTION, found.change)
        owner.server.unary(DESCRIBE_SUBSCRIPTIONS, found.describe)
        owner.server.unary(DESCRIBE_ACK_STATE, found.acks)
        owner.server.unary(PREVIEW_SEEK, found.preview)
        granted = Policies(permissions={"auditor": (Right.CONSUME.value,), "importer": (Right.PRODUCE.value,)})
        policies = browser.admin.replica.coordination.policies
        await policies.change(parse_namespace("public/default"), lambda _: granted)
        await browser.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        assert (await browser.log_in(ROOT)).status_code == 303
        yield found


async def test_page_shows_who_holds_what_since_when(world: Subscribed) -> None:
    """With the lowest messages that are not acknowledged, and what keeps the subscription from going on."""
    await world.place()
    page = await world.browser.page(PAGE)
    state = text_of(block_of(page, "state"))
    assert "backlog 7" in state
    assert "■ blocked since" in state
    assert "From index 41 to 60: 2 ranges of messages that are not acknowledged." in state
    assert "51 to 60: 2 acknowledged, 3 with consumers, of 10" in block_of(page, "state")
    consumers = text_of(block_of(page, "consumers"))
    assert "<b>till</b> 10.0.0.7:5000 as clerk" in consumers
    assert " 3 41 " in consumers
    assert " 47 9 2 " in consumers
    assert "<b>till" not in page
    assert "41 43 <b>till</b>" in text_of(block_of(page, "holes"))
    assert 'place=index&amp;at=41&amp;limit=1">41</a>' in page, "it leads to the message"
    letters = text_of(block_of(page, "letters"))
    assert "There is no topic public/default/flights-billing-DLQ : no message has become a dead letter." in letters
    assert "▲ not stored yet 1 dead letter: topic x is full" in letters


async def test_page_shows_what_a_real_owner_says(tmp_path: Path) -> None:
    """Its fields are those of the page."""
    async with served_console(tmp_path) as console:
        runner = await console.world.serve("orders")
        await stored(console.channel, runner, *[2] * 5)
        client = ConsumeClient(console.channel, runner)
        attached = await client.attach(window=6)
        await client.received(6)
        await client.ack(attached, 0, 3)
        page = await console.page("/console/topics/public/default/orders/subscriptions/billing")
    assert "backlog 6" in text_of(block_of(page, "state"))
    assert "From index 4 to 9: 1 range of messages that are not acknowledged." in text_of(block_of(page, "state"))
    assert "4 to 5: 0 acknowledged, 2 with consumers, of 2" in block_of(page, "state")
    assert " 2 4 now " in text_of(block_of(page, "consumers"))
    assert "4 9 " in text_of(block_of(page, "holes"))
    assert "no message has become a dead letter" in text_of(block_of(page, "letters"))


async def test_looking_at_a_topic_without_an_owner_places_nothing(world: Subscribed) -> None:
    """The page says that nobody serves it; neither the topic nor its subscription is asked for."""
    text = text_of(await world.browser.page(PAGE))
    assert "▲ not served No topic owner serves public/default/flights now (phase unowned)." in text
    assert not world.owner.assigned
    assert world.described == 0


async def test_dead_letters_are_counted_where_their_topic_is_served(world: Subscribed) -> None:
    """And nothing is asked that would place it."""
    await world.place()
    await world.browser.admin.change("PUT", f"{FLIGHTS}-billing-DLQ", headers=bearer(ROOT))
    assigned = len(world.owner.assigned)
    letters = text_of(block_of(await world.browser.page(PAGE), "letters"))
    assert "No topic owner serves public/default/flights-billing-DLQ now." in letters
    assert len(world.owner.assigned) == assigned


async def test_subscription_of_a_partitioned_topic_leads_to_its_partitions(world: Subscribed) -> None:
    """Each has a backlog of its own. What belongs to one partition is not offered for all."""
    await world.browser.admin.change("PUT", f"{FLIGHTS}2/partitions", json=3, headers=bearer(ROOT))
    page = await world.browser.page(PAGE.replace("flights", "flights2"))
    assert 'href="/console/topics/public/default/flights2-partition-2/subscriptions/billing"' in page
    assert "Skip the oldest" not in page
    assert "Clear the backlog" in page


async def test_actions_are_shown_with_the_right_only(world: Subscribed) -> None:
    """Who consumes may do all but redrive, which publishes."""
    await world.place()
    assert "Redrive dead letters" in await world.browser.page(PAGE)
    await world.browser.log_in("auditor")
    page = await world.browser.page(PAGE)
    assert "Seek" in page
    assert "Redrive" not in page
    await world.browser.page(f"{PAGE}/redrive", 403)
    await world.browser.page(f"{PAGE}/clear")
    await world.browser.log_in("importer")
    page = await world.browser.page(PAGE)
    assert "Clear the backlog" not in page
    assert "has no right to admin or consume in namespace public/default" in text_of(
        await world.browser.page(f"{PAGE}/clear", 403)
    )
    answer = await world.browser.send(f"{PAGE}/clear", csrf="0" * 90, typed="billing")
    assert answer.status_code == 403
    assert not world.changes


LOSSES = [
    ("seek?by=index&at=5", "Acknowledged, and delivered again: 1 234 messages .", "seek"),
    ("seek?by=time&at=2026-01-31T12%3A00", "Not acknowledged, and left out: 1 message , not delivered", "seek"),
    ("seek?by=message_id&at=7%3A0", "It goes on at index 5", "seek"),
    ("seek?by=earliest&at=", "begins again at the place, for all its consumers", "seek"),
    ("skip?count=3", "The oldest 3 messages of the backlog", "skip"),
    ("clear", "7 messages are in its backlog.", "skip_all"),
    ("delete-subscription?force=true", "Connected consumers end.", "delete"),
]


async def test_action_says_what_is_lost_and_does_it_once(world: Subscribed) -> None:
    """Sent twice, as by a double click, it is done once: the second form is refused, and says so."""
    await world.place()
    for path, said, change in LOSSES:
        form = {
            "csrf": await confirmed(world.browser, f"{PAGE}/{path}", said),
            "seen": seen_of(await world.browser.page(f"{PAGE}/{path}")),
            "typed": "billing",
        }
        answer = await world.browser.send(f"{PAGE}/{path}", None, **form)
        assert answer.status_code == 303, answer.text
        again = await world.browser.send(f"{PAGE}/{path}", None, **form)
        assert again.status_code == 409
        assert "the form was sent twice, and is carried out once" in text_of(again.text)
        assert [(each.WhichOneof("change"), each.subscription) for each in world.changes] == [(change, "billing")]
        world.changes.clear()


@pytest.mark.parametrize(
    ("path", "moved", "acts"),
    [
        ("skip?count=1", {}, True),
        ("skip?count=1", {"mark_delete": 42, "msg_backlog": 6}, False),
        ("skip?count=1", {"seek_epoch": 3}, False),
        ("clear", {"mark_delete": 45, "msg_backlog": 9}, True),
        ("clear", {"mark_delete": 48, "msg_backlog": 2}, False),
        ("clear", {"seek_epoch": 3}, False),
    ],
)
async def test_form_that_another_replica_took_acts_no_second_time(
    world: Subscribed, path: str, moved: dict[str, int], acts: bool
) -> None:
    """Nor one of before a restart: no process remembers it, but the subscription is not any more where the form saw it.
    A subscription whose consumers go on can be cleared all the same."""
    path = f"{PAGE}/{path}"
    form = {"csrf": await confirmed(world.browser, path), "seen": seen_of(await world.browser.page(path))}
    world.statistics = STATISTICS | moved
    answer = await world.browser.send(path, None, **form, typed="billing")
    assert (answer.status_code, len(world.changes)) == ((303, 1) if acts else (409, 0))
    if not acts:
        assert "perhaps because the form was sent before" in text_of(answer.text)
        assert f"{world.statistics['msg_backlog']} messages are in its backlog" in text_of(answer.text)


async def test_form_without_its_figures_does_not_skip(world: Subscribed) -> None:
    """Neither if it carries none, or others, nor while they cannot be read."""
    path = f"{PAGE}/skip?count=1"
    for seen in ("", "[", "[1]", "{}", "[" * 2_000, '["41",2,7]'):
        form = await confirmed(world.browser, path)
        assert (await world.browser.send(path, csrf=form, seen=seen, typed="billing")).status_code == 409
    form, seen = await confirmed(world.browser, path), seen_of(await world.browser.page(path))
    world.statistics = None
    answer = await world.browser.send(path, csrf=form, seen=seen, typed="billing")
    assert answer.status_code == 404
    assert "■ not done nothing was done: the topic has no subscription billing" in text_of(answer.text)
    assert not world.changes


async def test_seek_carries_out_the_place_that_the_page_showed(world: Subscribed) -> None:
    """A time without a zone is in UTC; a message id is where it begins."""
    await world.place()
    for query, name, value in (
        ("by=index&at=5", "index", 5),
        ("by=time&at=1970-01-01T00%3A00%3A07", "time_ms", 7_000),
        ("by=time&at=1970-01-01T01%3A00%3A07%2B01%3A00", "time_ms", 7_000),
    ):
        path = f"{PAGE}/seek?{query}"
        await world.browser.send(path, csrf=await confirmed(world.browser, path), typed="billing")
        assert getattr(world.changes[-1].seek, name) == value
    path = f"{PAGE}/seek?by=message_id&at=7%3A3"
    await world.browser.send(path, csrf=await confirmed(world.browser, path), typed="billing")
    assert (world.changes[-1].seek.message_id.ledger_id, world.changes[-1].seek.message_id.inclusive) == (7, True)


async def test_bad_parameter_is_named_before_anything_is_asked(world: Subscribed) -> None:
    """On a page, and not as a failure."""
    for path, detail in (
        ("seek", "by: must be earliest"),
        ("seek?by=index&at=-1", "at: must be a whole number"),
        ("seek?by=index&at=%D9%A3", "at: must be a whole number"),
        ("seek?by=time&at=yesterday", "at: must be a time as 2026-01-31T12:00:00"),
        ("seek?by=message_id&at=", "at: must be a message id as 7:0"),
        ("seek?by=message_id&at=7", "at: must be a message id as 7:0"),
        ("skip?count=all", "count: must be a whole number"),
    ):
        assert detail in text_of(await world.browser.page(f"{PAGE}/{path}", 422))


async def test_refusal_of_rest_is_shown_and_nothing_claims_that_it_was_done(world: Subscribed) -> None:
    """With the figures of now, and a form that may be sent again."""
    await world.place()
    world.error = Conflict("the subscription has connected consumers")
    form = await confirmed(world.browser, f"{PAGE}/clear")
    seen = seen_of(await world.browser.page(f"{PAGE}/clear"))
    answer = await world.browser.send(f"{PAGE}/clear", csrf=form, seen=seen, typed="billing")
    assert answer.status_code == 409
    assert "■ not done the subscription has connected consumers" in text_of(answer.text)
    world.error = None
    form = await confirmed(world.browser, f"{PAGE}/clear")
    answer = await world.browser.send(f"{PAGE}/clear", csrf=form, seen=seen, typed="billing")
    assert answer.status_code == 303
