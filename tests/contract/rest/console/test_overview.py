"""The overview and the list of topics."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.console.pages.overview import UNSOUND, cluster_rates, newest_proofs
from oncelog.metadata.console.pages.what_to_do import ADVICE
from oncelog.metadata.console.rest_reading import Block, Problem
from oncelog.metadata.console.staleness import Stale, distinct_problems
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import RepairProgress, RepairStore
from oncelog.wire.observation_pb2 import ListedTopic
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.admin.test_admin_storage import three_nodes
from tests.contract.rest.console.console_world import Browser, block_of, serving, text_of
from tests.contract.rest.console.test_templates import TEMPLATES
from tests.contract.rest.observing.test_lags import lag

pytestmark = pytest.mark.asyncio
DEADLINE_S = 60.0


def listed(name: str, **summary: object) -> ListedTopic:
    shown = {"phase": "serving", "states": [], "publishing": "open", **summary}
    return ListedTopic(
        topic=name, topic_id=name.encode().hex()[-32:], owner_epoch=1, rank=0, summary_json=json.dumps(shown)
    )


async def storage_nodes(console: Browser) -> None:
    """As many as a ledger needs."""
    registry = Registry(await console.admin.world.session())
    for number in range(3):
        node = LiveStorageNode(Incarnation(f"{number:032x}"), "127.0.0.1", 1, 1)
        await registry.register_storage_node(node).establish()


async def test_overview_of_an_empty_cluster_says_what_is_missing() -> None:
    """In words, with the call behind each block."""
    async with serving() as console:
        page = await console.page("/console/")
        assert "no topic owner can take a topic: start a topic owner" in text_of(block_of(page, "sentence"))
        assert "■ none No topic owner has a ZooKeeper session" in text_of(block_of(page, "owners"))
        assert "■ none No storage node has joined" in text_of(block_of(page, "nodes"))
        assert "No topic owner has a sample yet" in text_of(block_of(page, "rates"))
        assert "● nothing No topic waits" in text_of(block_of(page, "stuck"))
        assert "No topic has been proved yet" in text_of(block_of(page, "proofs"))
        line = f"curl http://127.0.0.1:{console.admin.port}/admin/v2/brokers"
        assert line in text_of(block_of(page, "owners"))


@pytest.mark.parametrize(
    ("by_copies", "sentence"),
    [
        ((), "● healthy Repair knows of no ledger that lacks a copy."),
        ((0, 0, 0, 1_204_331), "● healthy All 1 204 331 entries of closed ledgers have 3 copies."),
        ((0, 2, 0, 10), "● healthy All 12 entries of closed ledgers have 1 copy or more."),
    ],
)
async def test_overview_says_how_many_copies_there_are(by_copies: tuple[int, ...], sentence: str) -> None:
    """As the elected replica last counted, not more."""
    async with serving() as console:
        await console.admin.owner()
        await storage_nodes(console)
        progress = RepairProgress(updated_ms=1_000, entries_by_copies=by_copies)
        await console.admin.replica.coordination.repair.store.write(progress)
        text = text_of(block_of(await console.page("/console/"), "sentence"))
        assert sentence in text
        assert "a proof reads the copies and compares them" in text


async def test_overview_promises_no_repair_that_is_not_possible() -> None:
    """It says that a node must return only if one is away, and that repair works on a copy only while it does."""
    async with serving() as console:
        await console.admin.owner()
        await storage_nodes(console)

        async def says(expected: str, **progress: int) -> str:
            """The sentence, once it has the text: what was read a moment ago is not read again."""
            found = RepairProgress(updated_ms=1_000, **progress)  # type: ignore[arg-type]
            await console.admin.replica.coordination.repair.store.write(found)
            text = ""

            async def said() -> bool:
                nonlocal text
                text = text_of(block_of(await console.page("/console/"), "sentence"))
                return expected in text

            await until(said, DEADLINE_S)
            return text

        await says("no sound copy is known at a live storage node; no storage node is away", unavailable=2)
        await says("; repair waits, see Storage", under_replicated=1)
        assert "0 B are left" not in await says(", and repair works on it", under_replicated=1, queued=1)
        registry = Registry(await console.admin.world.session())
        away = StorageCookie(Incarnation("f" * 32), "127.0.0.1", 1)
        await registry.write_cookie(away, version=ABSENT_VERSION)
        await says("1 storage node is away: its copies count again when it returns", unavailable=2)


async def test_newest_proofs_are_shown_first() -> None:
    """The list of REST is ordered by topic id; one that goes on counts from when it was asked for."""

    def row(topic: str, going_ms: int | None, ended_ms: int | None) -> dict[str, object]:
        going = going_ms and {"asked_ms": going_ms, "ended_ms": None}
        return {"topic": topic, "going": going, "verdict": ended_ms and {"asked_ms": 1, "ended_ms": ended_ms}}

    rows = [row("a", None, 10), row("b", 40, 5), row("c", None, 30), *(row("d", None, 2) for _ in range(4))]
    assert [each["topic"] for each in newest_proofs({"proofs": rows})] == ["b", "c", "a", "d", "d"]


async def test_overview_names_what_is_stuck() -> None:
    """With its reason and since when; a topic of a hostile name is text."""
    async with serving() as console:
        owner = await console.admin.owner()
        name = "public/default/t"
        owner.listed = [
            listed(name, states=["waiting"], waiting_for="ledger_unavailable", waiting_since_ms=1_000,
                   waiting_message="2 of 3 <b>nodes</b> are away"),
        ]  # fmt: skip
        page = await console.page("/console/")
        assert "■ 1 topic waits" in text_of(block_of(page, "sentence"))
        stuck = block_of(page, "stuck")
        assert "public/default/t ■ waiting ledger_unavailable" in text_of(stuck)
        assert "2 of 3 &lt;b&gt;nodes&lt;/b&gt; are away" in stuck
        assert '<time title="1970-01-01 00:00:01.000 UTC">' in stuck
        assert 'href="/console/topics/public/default/t"' in stuck


async def test_overview_shows_a_role_its_own_namespaces(tmp_path: Path) -> None:
    """And nothing of the cluster; the list of topics is that of a namespace."""
    async with serving(secured(tmp_path)) as console:
        await console.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        rights = "/admin/v2/namespaces/public/default/permissions/shop"
        await console.admin.http.post(rights, headers=bearer(ROOT), json=["consume"])
        await console.log_in("shop")
        page = await console.page("/console/")
        assert "public/default consume" in text_of(block_of(page, "namespaces"))
        assert 'id="owners"' not in page
        assert "Choose one of your namespaces" in text_of(await console.page("/console/topics"))
        page = await console.page("/console/topics?namespace=public/default")
        assert "public/default/flights" in text_of(block_of(page, "unowned"))
        page = await console.page("/console/topics?namespace=public/other")
        assert "○ hidden permission denied" in text_of(block_of(page, "topics"))


@pytest.mark.hazard("page-hides-the-silent")
async def test_page_does_not_wait_for_an_owner_that_does_not_answer() -> None:
    """REST waits for it, for seconds; the page shows what it knows, and since when the rest is unknown."""
    async with serving() as console:
        owner = await console.admin.owner()
        owner.listed = [listed("public/default/t", states=["waiting"], waiting_for="x", waiting_since_ms=1_000)]
        await console.page("/console/")
        owner.hold_lists = asyncio.Event()

        async def unknown() -> bool:
            text = text_of(block_of(await console.page("/console/"), "stuck"))
            return (
                re.search(r"\? unknown since \S+ \S+ ago , shown as of then: no answer within 1\.5 s", text) is not None
            )

        await until(unknown, DEADLINE_S)
        page = await console.page("/console/")
        assert "public/default/t ? waiting" in text_of(block_of(page, "stuck"))
        assert f"{owner.address} ● live" in text_of(block_of(page, "owners"))
        owner.hold_lists.set()


@pytest.mark.hazard("page-hides-the-silent")
async def test_state_of_then_is_unknown_now() -> None:
    """Nothing old is green or in the present: in sentences with its time, in tables with the time of the block. What is
    known stays as it is, and equal problems of a block are one."""
    async with serving() as console:
        owner = await console.admin.owner()
        await storage_nodes(console)
        owner.listed = [listed("public/default/t")]
        await console.page("/console/topics")
        owner.listed = []
        await console.page("/console/")
        owner.hold_lists = asyncio.Event()

        async def old() -> bool:
            return "nothing waited" in text_of(block_of(await console.page("/console/"), "sentence"))

        await until(old, DEADLINE_S)
        page = await console.page("/console/")
        sentence, stuck = text_of(block_of(page, "sentence")), text_of(block_of(page, "stuck"))
        assert "? not all is known Repair knows of no ledger that lacks a copy." in sentence, "of copies all is known"
        then = r"\? as of \S+ \S+ ago : 1 owner served 0 topics; nothing waited, and every backlog had a consumer\."
        assert re.search(then, sentence), sentence
        assert re.search(r"\? as of \S+ \S+ ago : nothing No topic waited or held publishing back", stuck), stuck
        assert "●" not in stuck
        assert stuck.count("unknown since") == sentence.count("unknown since") == 1
        topics = block_of(await console.page("/console/topics"), "topics")
        assert "public/default/t ? serving" in text_of(topics)
        assert 'class="state good"' not in topics
        owner.hold_lists.set()

        async def known() -> bool:
            return "nothing waits, and" in text_of(block_of(await console.page("/console/"), "sentence"))

        await until(known, DEADLINE_S)


async def test_oldest_of_equal_problems_is_shown() -> None:
    """Another problem, and what was never known, is shown beside it."""
    late, refused = Problem(0, "no_answer", "no answer"), Problem(403, "permission_denied", "no right")
    a, b, c = (Block(1, late, at_ms, "") for at_ms in (30, 10, 20))
    never, other, fine = Block(None, late, None, ""), Block(None, refused, None, ""), Block(1, None, 5, "")
    assert distinct_problems([a, b, fine, never, c, other]) == [b, never, other]
    stale = Stale()
    stale.begin([a, b, fine, never])
    assert stale.since_ms == 10
    stale.begin([fine])
    assert stale.word("waits", "waited") == "waits"
    stale.end()
    assert stale.word("waits", "waited") == "waited"


@pytest.mark.hazard("page-hides-the-silent")
async def test_overview_does_not_say_that_nothing_waits_at_a_silent_owner() -> None:
    """The topics of an owner that does not answer may be stuck."""
    async with serving() as console:
        owner = await console.admin.owner()
        await storage_nodes(console)
        owner.listed = None
        page = await console.page("/console/")
        assert f"? unknown the topics of owner {owner.address}: " in text_of(block_of(page, "stuck"))
        sentence = text_of(block_of(page, "sentence"))
        assert "whether others wait is unknown" in sentence
        assert "0 owners serve 0 topics; 1 owner does not answer, and what it serves is unknown" in sentence
        assert "healthy" not in sentence
        assert "nothing" not in text_of(block_of(page, "stuck")) + text_of(block_of(page, "sentence"))


async def test_topics_are_listed_with_what_their_owner_says() -> None:
    """An owner that does not answer is named; what is wrong with the address of the page is said."""
    async with serving() as console:
        owner = await console.admin.owner()
        owner.listed = [
            listed("public/default/a", subscriptions=2, backlog_messages=1_204_331, backlog_subscription="<i>s</i>",
                   message_count=5, bytes=1_536, rate_in=0.25, rate_out=1_000.0, states=["backlog"]),
            listed("public/default/p", partitions=3, message_count=7, states=["growing"], growing_subscription="s"),
        ]  # fmt: skip
        page = await console.page("/console/topics")
        text = text_of(block_of(page, "topics"))
        assert "public/default/a ● serving 5 0.2 1 000 2 1 204 331 – 1.5 KiB" in text
        assert "public/default/p 3 partitions ▲ growing s 7" in text
        assert 'title="&lt;i&gt;s&lt;/i&gt;"' in page
        assert "<i>" not in page
        asked = owner.lists_asked[-1]
        assert (asked.sort, asked.folded) == ("name", True)
        assert '<a href="/console/topics?sort=rate_in">In/s</a>' in page
        page = await console.page("/console/topics?sort=rate_in&name=A&after=")
        asked = owner.lists_asked[-1]
        assert (asked.sort, asked.folded, asked.name) == ("rate_in", False, "A")
        assert 'href="/console/topics?sort=rate_in&amp;name=A" aria-current="true">In/s</a> ▼' in page
        owner.listed = None
        page = await console.page("/console/topics?state=held")
        assert f"? unknown the topics of owner {owner.address}: " in text_of(block_of(page, "topics"))
        assert "must be tenant/namespace" in text_of(await console.page("/console/topics?namespace=x", 422))
        page = await console.page("/console/topics?state=stuck")
        assert "■ refused state: " in text_of(block_of(page, "topics"))


async def test_rates_of_owners_are_added_by_time() -> None:
    """Their samples are at different times, one owner began later, and a time is that of the slowest."""

    def sample(at_ms: int, stored: int, p50: float | None) -> dict[str, object]:
        counts = dict.fromkeys(("delivered", "acknowledged", "duplicates", "stale", "unverified"), 1)
        times = {"publish_p50_ms": p50, "publish_p99_ms": p50}
        return {"at_ms": at_ms, "interval_ms": 10_000, "stored": stored, **counts, **times}

    one = [sample(100_001, 10, 1.0), sample(110_001, 20, None), sample(120_001, 10, 1.0), sample(130_001, 70, 1.0)]
    other = [sample(119_000, 5, 9.0), sample(129_000, 30, 3.0)]
    sums = cluster_rates({"owners": [{"samples": one}, {"samples": other}]})
    assert sums.rates["stored"] == [None] * 57 + [1.0, 2.5, 4.0]
    assert sums.rates["publish_p50_ms"] == [None] * 57 + [1.0, 9.0, 3.0]
    assert (sums.totals["duplicates"], sums.since_ms) == (6, 90_001)
    assert cluster_rates({"owners": []}).rates == {}


async def test_cluster_with_a_backlog_that_nobody_consumes_is_not_healthy() -> None:
    """Though every copy is there. With its subscription, its size and its age, and what to do."""
    async with serving() as console:
        owner = await console.admin.owner()
        await storage_nodes(console)
        owner.lags = [lag("orders", "billing", 16_200, oldest_ms=1_000), lag("bills", "audit", 3, oldest_ms=5_000)]
        page = await console.page("/console/")
        sentence = block_of(page, "sentence")
        assert "healthy" not in text_of(sentence)
        assert "▲ look at this Repair knows of no ledger that lacks a copy." in text_of(sentence)
        assert "▲ 16 203 messages that nobody consumes , of 2 subscriptions without a consumer; the oldest" in text_of(
            sentence
        )
        assert '<time title="1970-01-01 00:00:01.000 UTC">' in sentence
        assert 'href="/console/help#no-consumer"' in sentence
        idle = block_of(page, "lags")
        assert "public/default/orders billing 16 200 158 KiB" in text_of(idle)
        assert 'href="/console/lags?state=no_consumer&amp;sort=age"' in idle


async def test_overview_names_dead_letters_that_wait() -> None:
    """Nobody looks at a topic of dead letters by himself."""
    async with serving() as console:
        owner = await console.admin.owner()
        await storage_nodes(console)
        owner.listed = [listed("public/default/t-billing-DLQ", states=["dead_letters"], dead_letters=7)]
        page = await console.page("/console/")
        assert "▲ 1 topic has dead letters that wait what to do" in text_of(block_of(page, "sentence"))
        assert "public/default/t-billing-DLQ ▲ dead letters 7 wait for a redrive" in text_of(block_of(page, "stuck"))
        assert "▲ dead letters 7 wait" in text_of(await console.page("/console/topics?state=dead_letters"))


async def test_overview_names_the_topics_of_lost_entries() -> None:
    """A ledger's number says nothing to a person. With what to do."""
    async with serving() as console, three_nodes(console.admin) as nodes:
        ledgers = LedgerStore(nodes[0].session)
        stored = await ledgers.read(LedgerId(3))
        assert stored is not None
        lost = replace(stored.value, lost=(EntryRange(EntryId(0), EntryId(1)),))
        assert (await ledgers.write(lost, version=stored.version)).status is WriteStatus.OK
        await RepairStore(nodes[0].session).write(RepairProgress(updated_ms=1_000, lost=1))

        async def noticed() -> bool:
            return 'id="ledgers-lost"' in await console.page("/console/")

        await until(noticed, DEADLINE_S)
        page = await console.page("/console/")
        sentence = block_of(page, "sentence")
        assert "■ lost 1 ledger with entries of which repair finds no sound copy" in text_of(sentence)
        assert 'href="/console/help#lost"' in sentence
        ledgers_lost = block_of(page, "ledgers-lost")
        assert "3 public/default/flights closed ■ lost" in text_of(ledgers_lost)
        assert "seen_within_s=3" in ledgers_lost


async def test_each_link_to_what_helps_leads_to_an_entry() -> None:
    """Of all pages. Its commands and documents are checked with those of the documents."""
    async with serving() as console:
        page = await console.page("/console/help")
        for name, one in ADVICE.items():
            assert one.title in text_of(block_of(page, name))
        linked = re.findall(r'what_to_do\("([a-z-]+)"\)', "".join(each.read_text() for each in TEMPLATES))
        assert set(linked) | set(UNSOUND) <= set(ADVICE)
