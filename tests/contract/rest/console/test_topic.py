"""The page of a topic, over a real owner: each figure is what the topic has, and looking changes nothing."""

from pathlib import Path

import pytest

from oncelog.core.names import parse_topic
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import PublishClient
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.console.console_world import block_of, serving, text_of
from tests.contract.rest.console.served_console import served_console
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio

TOPIC = "/console/topics/public/default/orders"
#: What a name may not become: a tag.
MARKUP = '<img src=x onerror="a()">'


async def test_topic_is_shown_with_its_log_producers_subscriptions_and_policies(tmp_path: Path) -> None:
    """Also with names that are markup, which stay text."""
    async with served_console(tmp_path) as console:
        runner = await console.world.serve("orders")
        await stored(console.channel, runner, *[2] * 5)
        await PublishClient(console.channel).open(runner, MARKUP)
        await PublishClient(console.channel).open(runner, "..")
        admin = Administrator(console.channel, runner)
        await admin.create("idle", 10)
        client = ConsumeClient(console.channel, runner)
        attached = await client.attach(window=6)
        await client.received(6)
        await client.ack(attached, 0, 3)
        await client.ack(attached, 5, 5, request=2)
        page = await console.page(TOPIC)
        state = text_of(block_of(page, "state"))
        assert "● serving at 127.0.0.1:" in state
        assert "messages 10 first kept 0" in state
        assert "Since this owner took over: stored 10." in state
        log = block_of(page, "log")
        assert "messages 0 to 9, open, ok, 1 of 1 copies" in log
        assert "1 ledger." in text_of(log)
        assert "A takeover now would replay" in text_of(log)
        producers = text_of(block_of(page, "producers"))
        assert "importer 1 1 monotonic ● 127.0.0.1:" in producers
        assert " 9 9 0 0 0 0 " in producers, "accepted, persisted, in flight, duplicates, stale, unverified"
        assert MARKUP in producers
        assert "<img" not in page
        subscriptions = block_of(page, "subscriptions")
        assert "billing shared 1 5" in text_of(subscriptions)
        assert "6 to 9: 0 acknowledged, 0 with consumers, of 4" in subscriptions
        assert "4 to 4: 0 acknowledged, 1 with consumers, of 1" in subscriptions
        assert "idle exclusive 0 0 0 B – 0 everything ● ok" in text_of(subscriptions)
        assert f'href="{TOPIC}?subscriptions_sort=name"' in subscriptions
        by_name = text_of(block_of(await console.page(f"{TOPIC}?subscriptions_sort=name"), "subscriptions"))
        assert "Subscription ▲" in by_name
        assert "2 subscriptions, by name." in by_name
        takeovers = text_of(block_of(page, "takeovers"))
        assert "Acquire Recover Load snapshot Replay Open" in takeovers
        policies = text_of(block_of(page, "policies"))
        assert "Retention of acknowledged messages keep for ever by default retention" in policies
        assert "on: a message that is sent again is not stored again by default" in policies
        assert "curl http://127.0.0.1/admin/v2/persistent/public/default/orders/policies" in policies
        assert "as curl" in state

        filtered = text_of(block_of(await console.page(f"{TOPIC}?producer=imp"), "producers"))
        assert "importer" in filtered
        assert MARKUP not in filtered
        one = text_of(block_of(await console.page(f"{TOPIC}/producer?name=importer"), "producer"))
        assert "● connected from 127.0.0.1:" in one
        assert "producer id 1 generation 1 mode monotonic accepted 9 persisted 9" in one
        dots = f"{TOPIC}/producer?name=.."
        assert f'href="{dots}"' in page
        assert "producer id 3 generation 1" in text_of(block_of(await console.page(dots), "producer"))
        assert "name is empty" in await console.page(f"{TOPIC}/producer", 422)


async def test_topic_without_an_owner_is_shown_and_stays_without_one(tmp_path: Path) -> None:
    """No call of the page places it, although an owner would take it."""
    async with served_console(tmp_path) as console:
        topics = console.world.parts.topics
        created = await topics.create(parse_topic("orders"))
        for path in (TOPIC, f"{TOPIC}/producer?name=p"):
            page = await console.page(path)
        page = await console.page(TOPIC)
        assert "○ no owner" in text_of(block_of(page, "state"))
        assert 'id="producers"' not in page
        assert "0 ledgers." in text_of(block_of(page, "log"))
        assert "Expiry of messages never by default" in text_of(block_of(page, "policies"))
        record = await topics.read(created.name.value.topic_id)
        assert record is not None
        assert (record.value.owner, record.value.owner_epoch) == (None, 0)


async def test_partitioned_topic_leads_to_its_partitions_and_unknown_is_said() -> None:
    async with serving() as console:
        await console.admin.change("PUT", "/admin/v2/persistent/public/default/orders/partitions", json=3)
        page = await console.page(TOPIC)
        assert "3 partitions." in text_of(block_of(page, "state"))
        assert "2 – ○ no owner" in text_of(block_of(page, "state"))
        assert f'href="{TOPIC}-partition-2"' in page
        assert 'id="log"' not in page
        missing = text_of(await console.page("/console/topics/public/default/none", 404))
        assert "topic public/default/none does not exist: create it" in missing


async def test_role_without_a_right_sees_which_one_it_needs(tmp_path: Path) -> None:
    """What REST refuses is said to be hidden, and no action is offered."""
    async with serving(secured(tmp_path)) as console:
        root = {"headers": bearer(ROOT)}
        await console.admin.change("PUT", "/admin/v2/persistent/public/default/orders", **root)
        granted = "/admin/v2/namespaces/public/default/permissions/writer"
        await console.admin.change("POST", granted, json=["produce"], **root)
        await console.log_in("writer")
        page = await console.page(TOPIC)
        assert "○ no owner" in text_of(block_of(page, "state"))
        for block in ("log", "policies"):
            text = text_of(block_of(page, block))
            assert "○ hidden permission denied: role writer has no right to admin in namespace public/default" in text
        assert "Unload" not in page
        assert "is not a superuser" in text_of(block_of(await console.page("/console/storage"), "copies"))
