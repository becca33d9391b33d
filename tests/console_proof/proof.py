"""The console under load, with a login, in a real browser.

Parts, in this order: every page with many topics, producers and subscriptions, and names as long as they may be; the
cost of 50 viewers; a thousand live streams; every page while owner, storage node and ZooKeeper are killed or silent.
What must hold is an AssertionError if it does not. Times and CPU are figures of this machine: they are printed beside
what they should be.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from playwright.async_api import Browser, Page, expect

import oncelog
from oncelog.metadata.console.pages import PAGES
from oncelog_lab.access import ClusterAccess
from oncelog_lab.bench.baseline import ticks
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.cluster import LabCluster
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.console.addresses import pages
from tests.cluster.console.browser import Complaints, chromium, overflow, violations
from tests.cluster.kills import any_time
from tests.cluster.until import until
from tests.console_proof.busy_cluster import ORDERS, SUBSCRIPTION, fill, traffic
from tests.console_proof.large_cluster import LONG, PRODUCERS, SUBSCRIPTIONS, fill_large
from tests.console_proof.pictures import take_pictures
from tests.contract.process.security_world import auth_environment, token

PARTS = ("pages", "viewers", "streams", "kills")
VIEWERS, STREAMS = 50, 1_000
PAGE_MS, VIEWERS_CORE = 150.0, 0.05
_MEASURED_S = 20.0
#: A page waits at most 1.5 s for an answer; the rest is for a busy machine.
_ANSWER_S = 6.0
_NARROW, _WIDE = 360, 1280
_HEADERS = {"authorization": f"Bearer {token('root')}"}


async def prove(data: Path, directory: Path, counts: dict[str, int], parts: Sequence[str]) -> None:
    """directory: for the pictures. counts: topics, producers, subscriptions. parts: some of PARTS."""
    variables = {name.removeprefix("ONCELOG_").lower(): value for name, value in auth_environment(data).items()}
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {**variables, "ledger_entries_max": 5_000}
        cluster = stack.enter_context(Cluster.running(data, **settings))
        cluster.rest = {"headers": _HEADERS}
        browser = await stack.enter_async_context(chromium())
        client = await stack.enter_async_context(
            oncelog.AsyncClient(cluster.url, token=token("root"), operation_timeout=DEADLINE_S)
        )
        rest = await stack.enter_async_context(httpx.AsyncClient(base_url=cluster.admin_url, headers=_HEADERS,
            timeout=_ANSWER_S, trust_env=False, limits=httpx.Limits(max_connections=None)))  # fmt: skip
        began = time.monotonic()
        await fill_large(cluster, client, **counts)
        print(f"{counts} after {time.monotonic() - began:.0f} s", flush=True)
        large = pages(PRODUCERS, SUBSCRIPTION) | {
            "topic-subscriptions": pages(SUBSCRIPTIONS, "x")["topic"],
            "topic-long": pages(LONG, "x")["topic"],
            "subscription": pages(SUBSCRIPTIONS, f"0000{'-' * 200}")["subscription"],
        }
        if "pages" in parts:
            await measure_pages(rest, large)
            await check_pages(browser, cluster, large)
            await take_pictures(
                browser,
                cluster.admin_url,
                large,
                directory,
                "large",
                token=token("root"),
                widths=[_WIDE],
                schemes=["light"],
            )
        if "viewers" in parts:
            await measure_viewers(cluster, rest, large)
        if "streams" in parts:
            await check_streams(rest)
        if "kills" in parts:
            await fill(cluster, client)
            async with traffic(client):
                await check_kills(browser, cluster, rest, pages(ORDERS, SUBSCRIPTION), directory)
    print("PROVEN", flush=True)


def tell(what: str, figure: str, *, over: bool = False) -> None:
    print(f"{what:60} {figure}{'   OVER' if over else ''}", flush=True)


async def measure_pages(rest: httpx.AsyncClient, paths: dict[str, str]) -> None:
    """How long the server takes for a page whose answers are older than a second."""
    for name, path in paths.items():
        times, size = [], 0
        async for _ in ticks(per_second=0.7, seconds=6):
            began = time.perf_counter()
            answer = await rest.get(path)
            times.append((time.perf_counter() - began) * 1_000)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            size = len(answer.content)
        found = median(times)
        tell(f"page {name}, {size / 1024:.0f} KiB", f"{found:.0f} ms (limit {PAGE_MS:.0f})", over=found > PAGE_MS)


async def check_pages(browser: Browser, cluster: Cluster, paths: dict[str, str]) -> None:
    """No complaint, nothing that axe finds, and no page wider than a phone."""
    async with opened(browser, cluster) as (page, complaints):
        for name, path in paths.items():
            await page.goto(path)
            assert (found := await violations(page)) == [], (name, found)
            await page.set_viewport_size({"width": _NARROW, "height": 900})
            assert await overflow(page) <= 0, name
            await page.set_viewport_size({"width": _WIDE, "height": 900})
        assert complaints.found == []
    tell("pages without a violation or a complaint", str(len(paths)))


@asynccontextmanager
async def opened(browser: Browser, cluster: Cluster) -> AsyncIterator[tuple[Page, Complaints]]:
    """A page that is logged in."""
    async with await browser.new_context(base_url=cluster.admin_url) as context:
        complaints = Complaints(context, urlsplit(cluster.admin_url).netloc)
        page = await context.new_page()
        await page.goto("/console/")
        await page.get_by_label("Token").fill(token("root"))
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("button", name="Log out")).to_be_visible()
        yield page, complaints


async def measure_viewers(cluster: Cluster, rest: httpx.AsyncClient, paths: dict[str, str]) -> None:
    """The CPU of the metadata service for so many viewers of one page, beyond what it takes without them."""
    lab = LabCluster(ClusterAccess(cluster.url, cluster.admin_url), cluster.data)
    idle = await _cores(lab)
    live = [
        paths[page.title.lower()] + ("" if page.live_when is None else "?tail=on")
        for page in PAGES
        if page.interval_s is not None
    ]
    for name, targets in (("the overview", ["/console/"]), (f"{len(live)} pages", live)):
        async with AsyncExitStack() as stack:
            reading = [
                await stack.enter_async_context(_stream(rest, targets[number % len(targets)]))
                for number in range(VIEWERS)
            ]
            assert [answer.status_code for answer in reading] == [200] * VIEWERS
            tasks = [asyncio.create_task(_drain(answer)) for answer in reading]
            used = await _cores(lab) - idle
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        tell(f"{VIEWERS} viewers of {name}", f"{used:.2f} cores (limit {VIEWERS_CORE})", over=used > VIEWERS_CORE)


def _stream(rest: httpx.AsyncClient, page: str) -> Any:
    return rest.stream("GET", f"/console/live?page={quote(page, safe='')}", timeout=60.0)


async def _drain(answer: httpx.Response) -> None:
    async for _ in answer.aiter_raw():
        pass


async def _cores(lab: LabCluster) -> float:
    meter = CpuMeter(lab)
    with meter:
        async for _ in ticks(per_second=1, seconds=_MEASURED_S):
            pass
    return meter.cores()["metadata"]


async def check_streams(rest: httpx.AsyncClient) -> None:
    """Most are refused; pages and REST go on meanwhile."""
    async with AsyncExitStack() as stack:
        statuses = [(await stack.enter_async_context(_stream(rest, "/console/"))).status_code for _ in range(STREAMS)]
        assert set(statuses) == {200, 429}, set(statuses)
        for path in ("/console/", "/admin/v2/brokers/health"):
            answer = await rest.get(path)
            assert answer.status_code == 200, (path, answer.status_code)
    tell(f"{STREAMS} streams of one role", f"{statuses.count(200)} open, the others refused; pages answer")


async def check_kills(
    browser: Browser, cluster: Cluster, rest: httpx.AsyncClient, paths: dict[str, str], directory: Path
) -> None:
    """A page that is open stays live, every page answers at once, and shows what is unknown; afterwards the figures go
    on."""
    async with opened(browser, cluster) as (page, complaints):
        await page.goto(paths["topic"])
        await expect(page.locator("#live")).to_have_text("live")
        owner = await cluster.owner_of(ORDERS)
        for victim in (owner, "storage-1", "zookeeper"):
            await cluster.has_id(victim)
            with cluster.held():
                await cluster.kill(victim, once=any_time)
                await _all_answer(rest, paths, f"{victim} is dead")
                await take_pictures(
                    browser,
                    cluster.admin_url,
                    paths,
                    directory,
                    f"dead-{victim}",
                    token=token("root"),
                    widths=[_WIDE],
                    schemes=["light"],
                )
            await cluster.healed()
            await _goes_on(cluster, page)
        with cluster.stopped(await cluster.owner_of(ORDERS)), cluster.stopped("zookeeper"):
            await _all_answer(rest, paths, "owner and ZooKeeper are silent")
        await cluster.healed()
        await _goes_on(cluster, page)
        assert complaints.found == []


async def _all_answer(rest: httpx.AsyncClient, paths: dict[str, str], when: str) -> None:
    """For some seconds, so that no answer is one from before."""
    slowest = (0.0, "")
    async for _ in ticks(per_second=0.5, seconds=8):
        for name, path in paths.items():
            began = time.perf_counter()
            answer = await rest.get(path)
            slowest = max(slowest, (time.perf_counter() - began, name))
            assert answer.status_code == 200, (when, path, answer.status_code, answer.text[:500])
    tell(f"slowest page while {when}", f"{slowest[0]:.2f} s: {slowest[1]}")


async def _goes_on(cluster: Cluster, page: Page) -> None:
    """The open page shows a number of messages above the present one."""
    before = int((await cluster.stats(ORDERS))["message_count"])

    async def shown() -> bool:
        texts = await page.locator("main dd, main td").all_inner_texts()
        figures = [int(text) for text in (re.sub(r"\s", "", each) for each in texts) if text.isdecimal()]
        return any(before < figure < before + 100_000 for figure in figures)

    await until(shown, DEADLINE_S, every_s=0.5, waiting_for=f"a figure above {before}")
    await expect(page.locator("#live")).to_have_text("live")
    tell("figures of the open page go on", f"above {before:,} messages")
