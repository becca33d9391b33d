"""The proof of a topic over REST."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from oncelog.metadata_store.session import paths
from tests.contract.proof.planted_log import TOPIC_ID
from tests.contract.proof.proving import Proving, a_log
from tests.contract.rest.lent_apps import lent_app

PATH = "/admin/v2/persistent/public/default/flights/proof"


@asynccontextmanager
async def served(proving: Proving) -> AsyncIterator[httpx.AsyncClient]:
    with lent_app(proving.coordination) as app:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            yield http


@pytest.mark.asyncio
async def test_verdict_is_shown_with_its_range_and_what_is_behind_it() -> None:
    """The messages that were stored since are counted at the time of the look; nobody knows them without an owner."""
    log = a_log()
    async with Proving.of(log) as proving, served(proving) as http:
        assert (await http.get(PATH)).json()["verdict"] is None
        asked = (await http.post(PATH)).json()
        assert (asked["state"], asked["bytes_per_second"], asked["cpu_percent"]) == ("queued", 4 << 20, 20)
        assert (await http.get(PATH)).json()["going"] == asked
        proving.elect()
        await proving.ended()
        log.next_index += 17
        proving.says(log)
        seen = (await http.get(PATH)).json()
        assert (seen["going"], seen["verdict"]["state"], seen["verdict"]["until_index"]) == (None, "proved", 24)
        assert (seen["next_index"], seen["behind"]) == (41, 17)
        proving.owner.states = []
        assert (await http.get(PATH)).json()["behind"] is None


@pytest.mark.asyncio
async def test_bad_requests_are_refused() -> None:
    """With the field and the limit; and a topic that is missing."""
    async with Proving.of(a_log()) as proving, served(proving) as http:
        for body, field in (
            ({"bytes_per_second": 1}, "bytes_per_second"),
            ({"cpu_percent": 101}, "cpu_percent"),
            ({"fast": True}, "fast"),
        ):
            refused = await http.post(PATH, json=body)
            assert (refused.status_code, field in refused.json()["field"]) == (422, True)
        assert (await http.post(PATH.replace("flights", "none"))).status_code == 404


@pytest.mark.asyncio
async def test_list_is_paged_and_names_what_it_cannot_read() -> None:
    """One record is damaged: the others are listed."""
    async with Proving.of(a_log()) as proving, served(proving) as http:
        await proving.ask()
        session = await proving.world.session()
        await session.create(paths.verdict(TOPIC_ID), b"{")
        await session.create(paths.proof(TOPIC_ID[:-1] + TOPIC_ID[0]), b"[]")  # type: ignore[arg-type]
        page = (await http.get("/admin/v2/proofs")).json()
        assert len(page["unreadable"]) == 2
        node = await session.read(paths.verdict(TOPIC_ID))
        assert node is not None
        await session.delete(paths.verdict(TOPIC_ID), version=node.version)
        first = (await http.get("/admin/v2/proofs?limit=1")).json()
        rest = (await http.get(f"/admin/v2/proofs?limit=1&after={first['next_after']}")).json()
        assert [each["topic"] for each in first["proofs"] + rest["proofs"]] == ["public/default/flights"]
        assert rest["next_after"] is None


@pytest.mark.hazard("unreadable-record")
@pytest.mark.asyncio
async def test_proof_is_asked_for_again_over_a_damaged_record() -> None:
    """The topic could never be proved again: nobody else writes the record anew."""
    async with Proving.of(a_log()) as proving, served(proving) as http:
        session = await proving.world.session()
        await session.create(paths.proof(TOPIC_ID), b"garbage")
        assert (await http.post(PATH)).json()["state"] == "queued"
        proving.elect()
        await proving.ended()
        assert (await http.get(PATH)).json()["verdict"]["state"] == "proved"
