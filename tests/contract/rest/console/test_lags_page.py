"""The page of all lags: filters, order and pages in the address."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.ids import Incarnation, OwnerEpoch
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import block_of, serving, text_of
from tests.contract.rest.console.test_overview import storage_nodes
from tests.contract.rest.observing.test_lags import lag

pytestmark = pytest.mark.asyncio
LAGS = "/console/lags"


async def test_lags_are_shown_with_their_sum_and_sorted_by_the_address() -> None:
    """What the viewer has chosen is in every link, and asked of the owners."""
    async with serving() as console:
        owner = await console.admin.owner()
        owner.lags = [
            lag("orders", "billing", 16_200, oldest_ms=1_000, backlog_change_10m=-30),
            lag("bills", "audit", 3, oldest_ms=5_000, consumer_count=2, backlog_change_10m=None),
            lag("bills", "blocked", 1, blocked={"reason": "x"}, consumer_count=1, backlog_change_10m=1_200),
        ]
        page = await console.page(f"{LAGS}?state=backlog&topic=b&subscription=i&sort=age")
        found = block_of(page, "lags")
        text = text_of(found)
        assert "3 subscriptions have a backlog of 16 204 messages together; the oldest was stored" in text
        assert "public/default/orders billing 16 200 −30 158 KiB" in text
        assert "public/default/bills audit 3 – 30 B" in text
        assert "public/default/bills blocked 1 +1 200" in text
        assert "shared ▲ no consumer" in text
        assert "shared ● consumed" in text
        assert "shared ■ blocked what to do" in text
        assert 'href="/console/topics/public/default/orders/subscriptions/billing"' in found
        assert 'href="/console/lags?state=backlog&amp;topic=b&amp;subscription=i&amp;sort=backlog"' in found
        (asked,) = owner.lags_asked
        assert (asked.state, asked.topic, asked.subscription, asked.sort, asked.limit) == (
            "backlog",
            "b",
            "i",
            "age",
            101,
        )
        assert '<option value="backlog" selected>with a backlog</option>' in page
        owner.lags = []
        assert "No subscription is like that." in text_of(await console.page(f"{LAGS}?state=blocked&namespace=a/b"))


@pytest.mark.parametrize(("path", "block"), [(LAGS, "lags"), ("/console/topics", "topics"), ("/console/", "lags")])
async def test_topics_without_an_owner_are_said_and_named(path: str, block: str) -> None:
    """On the pages of lags and topics, and on the overview, which calls no such cluster healthy."""
    async with serving() as console:
        await console.admin.owner()
        await storage_nodes(console)
        names = [f"public/default/t{number:02}" for number in range(12)]
        for name in names:
            await console.admin.change("PUT", f"/admin/v2/persistent/{name}")
            record = await console.admin.world.record(name)
            lost = replace(record, owner=Incarnation("d" * 32), owner_epoch=OwnerEpoch(1))
            await console.admin.world.topics.write(lost, version=0)
        page = await console.page(path)
        text = text_of(block_of(page, block)).replace(" ,", ",")
        assert "▲ 12 topics have no owner and are not counted: public/default/t00, public/default/t01," in text
        assert "public/default/t09, …. A topic gets an owner when a client uses it" in text
        assert "t10" not in text
        assert "● healthy" not in page


@pytest.mark.parametrize("path", [LAGS, "/console/"])
async def test_topics_that_are_not_served_yet_are_said_and_named(path: str) -> None:
    """Their owner has them, and knows no subscription of theirs: a short list looked like good health."""
    async with serving() as console:
        owner = await console.admin.owner()
        await storage_nodes(console)
        owner.waiting = [f"public/default/t{number:02}" for number in range(12)]
        page = await console.page(path)
        text = text_of(block_of(page, "lags")).replace(" ,", ",").replace(" .", ".")
        assert "▲ 12 topics are not served yet and are not counted: public/default/t00, public/default/t01," in text
        assert "public/default/t09, …. what to do" in text
        assert "t10" not in text
        assert "of a topic that is served" in text
        assert "● healthy" not in page


async def test_list_of_lags_has_pages() -> None:
    """A hundred rows each."""
    async with serving() as console:
        owner = await console.admin.owner()
        owner.lags = [lag("orders", f"s{number:03}", 1_000 - number) for number in range(150)]
        page = block_of(await console.page(LAGS), "lags")
        assert "100 rows of 150 subscriptions" in text_of(page)
        assert 'href="/console/lags?after=-901%3Apublic%2Fdefault%2Forders+s099"' in page
        behind = await console.page(f"{LAGS}?after=-901%3Apublic%2Fdefault%2Forders+s099")
        assert "50 rows of 150 subscriptions" in text_of(behind)


async def test_role_sees_the_lags_of_its_namespaces(tmp_path: Path) -> None:
    """The list of all is for superusers."""
    async with serving(secured(tmp_path)) as console:
        await console.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        rights = "/admin/v2/namespaces/public/default/permissions/shop"
        await console.admin.http.post(rights, headers=bearer(ROOT), json=["consume"])
        await console.log_in("shop")
        assert "Choose one of your namespaces" in text_of(await console.page(LAGS))
        page = await console.page(f"{LAGS}?namespace=public/default")
        assert "No subscription of a topic that is served." in text_of(block_of(page, "lags"))
        page = await console.page(f"{LAGS}?namespace=public/other")
        assert "○ hidden permission denied" in text_of(block_of(page, "lags"))
