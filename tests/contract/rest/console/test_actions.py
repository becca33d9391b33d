"""Actions: only from a page of the console, rendered for the same viewer, and after a name was typed."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.metadata.metadata_world import FakeOwner
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, serving, text_of

pytestmark = pytest.mark.asyncio

TOPIC = "/console/topics/public/default/flights"
UNLOAD = f"{TOPIC}/unload"
NAME = "public/default/flights"


@dataclass
class Acting:
    """A topic `flights` with an owner, which notes what it is asked to unload. The viewer is a superuser."""

    browser: Browser
    owner: FakeOwner

    async def csrf(self, path: str = UNLOAD) -> str:
        """The token of the form on a page."""
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', await self.browser.page(path))
        assert found is not None
        return found[1]

    async def refused(self, status: int, headers: dict[str, str] | None = None, **fields: str) -> str:
        """The text of the page that the form is answered with; nothing was unloaded."""
        answer = await self.browser.send(UNLOAD, headers, **fields)
        assert answer.status_code == status, answer.text
        assert not self.owner.unloading
        return text_of(answer.text)


@pytest_asyncio.fixture
async def acting(tmp_path: Path) -> AsyncIterator[Acting]:
    async with serving(secured(tmp_path)) as browser:
        owner = await browser.admin.owner()
        await browser.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        await browser.admin.replica.look_up(NAME)
        assert (await browser.log_in(ROOT)).status_code == 303
        yield Acting(browser, owner)


async def test_action_is_done_after_its_name_was_typed(acting: Acting) -> None:
    """The page says what would be lost, and shows the request; afterwards the viewer is told."""
    text = text_of(await acting.browser.page(UNLOAD))
    assert "No message is lost." in text
    port = acting.browser.admin.port
    assert f'curl -X PUT -H "Authorization: Bearer $(cat token)" http://127.0.0.1:{port}{FLIGHTS}/unload' in text
    answer = await acting.browser.send(UNLOAD, csrf=await acting.csrf(), typed=NAME)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{TOPIC}?done=unload")
    assert acting.owner.unloading == [(await acting.browser.admin.world.record()).topic_id]
    assert "The topic was unloaded" in text_of(await acting.browser.page("/console/?done=unload"))


async def test_action_is_refused_without_the_typed_name(acting: Acting) -> None:
    """The page asks again."""
    text = await acting.refused(422, csrf=await acting.csrf(), typed="flights")
    assert f"■ not done nothing was done: type {NAME} to confirm" in text
    assert "Unload the topic" in text


async def test_action_is_refused_without_the_token_of_its_own_form(acting: Acting) -> None:
    """Not without one, not with that of another page, and not with that of another role."""
    await acting.refused(403, typed=NAME)
    await acting.refused(403, typed=NAME, csrf="")
    await acting.refused(403, typed=NAME, csrf=await acting.csrf(f"{UNLOAD}?other=1"))
    own = await acting.csrf()
    await acting.browser.log_in("operator")
    text = await acting.refused(403, typed=NAME, csrf=own)
    assert "the form is not one of yours" in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {},
    ],
)
async def test_action_is_refused_from_another_origin(acting: Acting, headers: dict[str, str]) -> None:
    """Also if the token is right: it may have leaked."""
    await acting.refused(403, headers, typed=NAME, csrf=await acting.csrf())


async def test_action_without_the_right_is_not_offered_and_refused(acting: Acting) -> None:
    """A role without a right in the namespace gets no form, and its POST is refused before REST is asked."""
    await acting.browser.log_in("stranger")
    assert "has no right to admin in public/default" in text_of(await acting.browser.page(UNLOAD, 403))
    await acting.refused(403, typed=NAME)


async def test_refusal_of_the_call_is_shown_on_the_page_that_asked(acting: Acting) -> None:
    """With its reason; nothing claims that it was done."""
    gone = "/console/topics/public/default/absent/unload"
    answer = await acting.browser.send(gone, csrf=await acting.csrf(gone), typed="public/default/absent")
    assert answer.status_code == 404
    assert "■ not done topic public/default/absent does not exist" in text_of(answer.text)


async def test_bodies_that_are_no_form_are_refused(acting: Acting) -> None:
    """Too many fields, a field twice, other encodings, too large: a page says why, and nothing is done."""
    kind = {"content-type": "application/x-www-form-urlencoded"} | acting.browser.origin
    csrf = await acting.csrf()
    for body, status in (
        (b"&".join(b"a%d=1" % each for each in range(1_000)), 422),
        (f"csrf={csrf}&typed={NAME}&typed=x".encode(), 422),
        (f"csrf={csrf}&typed={NAME}".encode("utf-16"), 422),
        (f"csrf={csrf}&typed=%00".encode(), 422),
        (f"csrf={csrf}&typed=%ff".encode(), 422),
        (b"typed=" + b"x" * 9_000, 422),
        (b"typed=" + b"x" * (1 << 20), 413),
    ):
        answer = await acting.browser.http.post(UNLOAD, content=body, headers=kind)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert not acting.owner.unloading
