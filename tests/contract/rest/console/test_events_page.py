"""The page of events: filters, pages, silent processes, hostile texts, and what admins of a namespace see."""

import logging
from itertools import count
from pathlib import Path

import pytest

from oncelog.runtime.observing.events import EventKind
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.console.console_world import block_of, serving, text_of

pytestmark = pytest.mark.asyncio
EVENTS = "/console/events"
logger = logging.getLogger(__name__)


async def test_events_are_shown_with_their_facts_and_filters() -> None:
    """The filters are links and a form, which need no script; a name with markup is text."""
    async with serving() as console:
        owner = await console.admin.owner()
        own, clock = console.admin.replica.coordination.events, count(1_700_000_000_000)
        own.now_ms = owner.events.now_ms = lambda: next(clock)
        hostile = "<script>alert(1)</script>"
        owner.events.note(EventKind.FENCING, logger, "a newer instance fenced a connected producer",
                          topic="public/default/flights", producer=hostile, generation=2, role=None)  # fmt: skip
        for _ in range(3):
            owner.events.note(EventKind.EVICTION, logger, "messages left a backlog", level="warning", repeats=True,
                              topic="public/default/flights", count=5, subscription="s")  # fmt: skip
        own.note(EventKind.OWNER, logger, "draining", node=owner.incarnation)
        own.note(EventKind.REPAIR, logger, "changed", via="rest", members="a" * 32, ledger_id=7, reason="a <i>disk</i>")
        page = await console.page(EVENTS)
        shown = block_of(page, "events")
        text = text_of(shown)
        assert (
            f"a newer instance fenced a connected producer producer {hostile}, generation 2 public/default/flights"
            in text
        )
        assert hostile not in page
        assert (
            "<summary>reason a &lt;i&gt;disk&lt;/i&gt;, ledger_id 7, via rest</summary>members aaaaaaaa…aaaa</details>"
            in shown
        )
        assert "▲ warning messages left a backlog (15, the last" in text
        assert 'href="/console/topics/public/default/flights"' in shown
        assert f'title="{owner.incarnation}"' in shown
        assert text.index("draining") < text.index("messages left") < text.index("a newer instance")
        kind = text_of(block_of(await console.page(f"{EVENTS}?kind=eviction"), "events"))
        assert "messages left a backlog" in kind
        assert "draining" not in kind
        assert '<option value="eviction" selected>' in await console.page(f"{EVENTS}?kind=eviction")
        topic = text_of(block_of(await console.page(f"{EVENTS}?topic=public/default/flights&kind="), "events"))
        assert "a newer instance" in topic
        assert "draining" not in topic
        node = f"{EVENTS}?node={owner.incarnation}"
        assert "draining" in text_of(block_of(await console.page(node), "events"))
        other = text_of(block_of(await console.page(f"{EVENTS}?namespace=public/other"), "events"))
        assert "Nothing of this kind has happened" in other
        assert "■ refused" in text_of(block_of(await console.page(f"{EVENTS}?kind=weather"), "events"))
        assert "namespace must be tenant/namespace" in text_of(await console.page(f"{EVENTS}?namespace=x", 422))


async def test_older_events_are_on_further_pages_and_a_silent_process_is_named() -> None:
    async with serving() as console:
        owner, dead = await console.admin.owner(), await console.admin.world.owner(console.admin.replica)
        await console.admin.replica.sees(owner, dead)
        await dead.stop_listening()
        for number in range(130):
            owner.events.note(EventKind.TAKEOVER, logger, "topic taken over", number=number)
        newest = block_of(await console.page(f"{EVENTS}?kind=takeover"), "events")
        assert "number 129" in text_of(newest)
        assert "number 29 " not in text_of(newest)
        assert f"? unknown the events of topic_owner {dead.incarnation[:8]}" in text_of(newest)
        older = newest.partition('<a href="/console/events?')[2] and newest.rpartition('href="/console/events?')[2]
        link = f"/console/events?{older.partition(chr(34))[0]}".replace("&amp;", "&")
        text = text_of(block_of(await console.page(link), "events"))
        assert "number 29 " in text
        assert "number 0 " in text
        assert "number 30 " not in text


async def test_admin_of_a_namespace_sees_its_events_only(tmp_path: Path) -> None:
    async with serving(secured(tmp_path)) as console:
        events = console.admin.replica.coordination.events
        rights = "/admin/v2/namespaces/public/default/permissions/shop"
        await console.admin.http.post(rights, headers=bearer(ROOT), json=["admin"])
        events.note(EventKind.TAKEOVER, logger, "topic taken over", topic="public/default/flights")
        events.note(EventKind.TAKEOVER, logger, "topic taken over", topic="public/other/secret")
        await console.log_in("shop")
        assert "Choose one of your namespaces" in text_of(await console.page(EVENTS))
        page = await console.page(f"{EVENTS}?namespace=public/default")
        assert "public/default/flights" in text_of(block_of(page, "events"))
        assert "rights changed" in text_of(block_of(page, "events"))
        assert "secret" not in page
        one = await console.page(f"{EVENTS}?topic=public/default/flights")
        assert "rights_changed" not in block_of(one, "events")
        assert "public/default/flights" in text_of(block_of(one, "events"))
        assert "○ hidden" in text_of(block_of(await console.page(f"{EVENTS}?namespace=public/other"), "events"))
        assert "○ hidden" in text_of(block_of(await console.page(f"{EVENTS}?topic=public/other/secret"), "events"))
