"""The list of proofs, and the page of a topic's proof with its actions."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.verify.proof import Part, TopicProof
from oncelog.verify.range_summary import Finding
from oncelog.wire import owner_pb2
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, block_of, confirmed, serving, text_of

pytestmark = pytest.mark.asyncio

NAME = "public/default/flights"
PAGE = f"/console/topics/{NAME}/proof"
DEADLINE_S = 60.0
END = Position(LedgerId(1), EntryId(9))


@dataclass
class Looking:
    """A topic whose owner says that its next message has index 41."""

    browser: Browser
    store: ProofStore
    asked: TopicProof

    @classmethod
    @asynccontextmanager
    async def at(cls) -> AsyncIterator["Looking"]:
        async with serving() as browser:
            owner = await browser.admin.owner()
            await browser.admin.change("PUT", FLIGHTS)
            await browser.admin.replica.look_up(NAME)
            topic_id = TopicId((await browser.admin.world.record()).topic_id)
            stats = {"last_position": "1:10", "message_count": 41, "producer_count": 1}
            owner.states = [
                owner_pb2.TopicState(topic_id=topic_id, phase="serving", owner_epoch=1, stats_json=json.dumps(stats))
            ]
            asked = TopicProof(topic_id, NAME, "ann", 1_000, 1 << 22, 20)
            yield cls(browser, browser.admin.replica.coordination.proofs.store, asked)

    async def keep(self, verdict: TopicProof) -> None:
        """As the verdict of a proof."""
        await self.store.ask(self.asked)
        going = await self.store.proof(self.asked.topic_id)
        assert going is not None
        await self.store.conclude(verdict, version=going.version)

    def read(self) -> TopicProof:
        """All parts were read."""
        proof = self.asked.taken("m-1", 2_000)
        proof = proof.ranged(from_index=3, until_index=24, end=END, entries=10)
        for part in Part:
            proof = proof.begun(part).progressed(part, 10, 10).done(part)
        return proof

    async def block(self, name: str, word: str) -> str:
        """The text of a block once it has this word: pages share answers of up to 1 s ago."""

        async def said() -> str:
            text = text_of(block_of(await self.browser.page(PAGE), name))
            return text if word in text else ""

        return await until(said, DEADLINE_S, waiting_for=f"{word} in block {name}")


async def test_verdict_says_until_where_and_what_is_behind_it() -> None:
    """And the list has it, too."""
    async with Looking.at() as looking:
        await looking.block("verdict", "○ none This topic has not been proved yet")
        await looking.keep(looking.read().concluded(5_000))
        said = await looking.block("verdict", "● proved until index 24,")
        assert "17 messages behind it are not proved yet" in said
        assert "index 3 to before 24" in said
        assert "copies ● sound 10 10 entries 0 0" in said
        await looking.block("going", "No proof goes on.")
        page = await looking.browser.page(f"/console/topics/{NAME}")
        assert "● proved until index 24," in text_of(block_of(page, "proof"))
        listed = block_of(await looking.browser.page("/console/proof"), "proofs")
        assert f'href="{PAGE}"' in listed
        assert "● proved" in text_of(listed)


async def test_failed_and_incomplete_verdicts_are_not_green() -> None:
    """Each finding with position and what each side says; what was not read, with the reason. Both are text."""
    async with Looking.at() as looking:
        finding = Finding("copies", END, "its copies differ: <b>aaaa</b> 01, bbbb 02")
        failed = looking.read().found(Part.COPIES, [finding]).left_out(Part.FOLD, ["<i>away</i>"])
        await looking.keep(failed.concluded(5_000))
        await looking.block("verdict", "failed")
        block = block_of(await looking.browser.page(PAGE), "verdict")
        assert "■ failed 1 finding," in text_of(block)
        assert "copies 1:9 its copies differ: <b>aaaa</b> 01, bbbb 02" in text_of(block)
        assert "&lt;b&gt;aaaa" in block
        assert "fold <i>away</i>" in text_of(block)
        assert "● proved" not in block
        await looking.keep(looking.read().left_out(Part.COPIES, ["a node is away"]).concluded(6_000))
        said = await looking.block("verdict", "▲ incomplete")
        assert "▲ incomplete nothing was found in what was read, and 1 thing was not read" in said
        assert "copies ▲ not checked" in said
        assert "proved until" not in said


async def test_later_verdict_does_not_hide_an_earlier_failure() -> None:
    """On the page of the proof and on that of the topic, in a sentence and in the history."""
    async with Looking.at() as looking:
        await looking.block("history", "There is no former verdict.")
        await looking.keep(
            looking.read().found(Part.COPIES, [Finding("copies", END, "<b>differ</b>")]).concluded(5_000)
        )
        await looking.keep(looking.read().concluded(6_000))
        said = await looking.block("verdict", "● proved")
        assert "■ 1 earlier proof failed the last" in said
        history = block_of(await looking.browser.page(PAGE), "history")
        assert "■ failed" in text_of(history)
        assert "1:9 <b>differ</b> ann" in text_of(history)
        assert "&lt;b&gt;differ" in history
        page = await looking.browser.page(f"/console/topics/{NAME}")
        assert "■ 1 earlier proof failed" in text_of(block_of(page, "proof"))


async def test_proof_is_begun_by_one_button_that_asks_for_nothing() -> None:
    """Nothing can be lost. It is no button of a danger; the form is still one of this viewer."""
    async with Looking.at() as looking:
        page = await looking.browser.page(PAGE)
        path = f"/console/topics/{NAME}/prove"
        form = re.search(rf'<form class="controls" method="post" action="{path}">.*?</form>', page, re.DOTALL)
        assert form is not None
        assert '<button class="primary">Prove the topic</button>' in form[0]
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', form[0])
        assert token is not None
        assert 'id="typed"' not in await looking.browser.page(path)
        assert (await looking.browser.send(path, csrf="0" * 90)).status_code == 403
        answer = await looking.browser.send(path, csrf=token[1])
        assert (answer.status_code, answer.headers["location"].partition(".")[0]) == (303, f"{PAGE}?done=prove")
        assert await looking.store.proof(looking.asked.topic_id) is not None


async def test_proof_that_goes_on_shows_its_progress() -> None:
    """Beside the former verdict."""
    async with Looking.at() as looking:
        await looking.keep(looking.read().concluded(5_000))
        proof = looking.asked.taken("m-1", 9_000).ranged(from_index=0, until_index=41, end=END, entries=10)
        proof = proof.done(Part.END).begun(Part.ONCE).progressed(Part.ONCE, 7)
        await looking.store.ask(replace(proof, began=2))
        said = await looking.block("going", "running")
        assert "○ running once 7 of 10 entries" in said
        assert "it has begun 2 times" in said
        await looking.block("verdict", "● proved")
        assert "once 7 of 10 entries" in text_of(await looking.browser.page("/console/proof"))


async def test_proof_is_begun_and_cancelled_after_the_name_was_typed() -> None:
    """The page that asks says what would happen; afterwards the page of the proof is shown. Nobody is elected here, so
    the proof waits, and a cancelled one ends at once."""
    async with Looking.at() as looking:
        await looking.store.ask(looking.asked)
        for action, told in (("prove", "Nothing is lost or changed"), ("cancel-proof", "goes on now")):
            path = f"/console/topics/{NAME}/{action}"
            token = await confirmed(looking.browser, path, told)
            answer = await looking.browser.send(path, csrf=token, typed=NAME)
            assert (answer.status_code, answer.headers["location"].partition(".")[0]) == (303, f"{PAGE}?done={action}")
        assert await looking.store.proof(looking.asked.topic_id) is None
        await looking.block("verdict", "○ cancelled")


async def test_who_may_not_prove_sees_no_proof(tmp_path: Path) -> None:
    """The page says which right is missing; the list of all is for superusers."""
    async with serving(secured(tmp_path)) as console:
        await console.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        rights = "/admin/v2/namespaces/public/default/permissions/shop"
        await console.admin.http.post(rights, headers=bearer(ROOT), json=["consume"])
        await console.log_in("shop")
        page = await console.page(PAGE)
        assert "○ hidden permission denied" in text_of(block_of(page, "verdict"))
        assert "Prove the topic" not in page
        assert "The list of all proofs is for superusers" in text_of(await console.page("/console/proof"))
