"""How pages read: shared, bounded, and never waiting for a dead process."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, PermissionDenied, ServiceUnavailable
from oncelog.metadata.console.rest_reading import AT_ONCE_MAX, Asker, Block, Reading, rest_path
from oncelog.metadata.rest.problems import problem
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 60.0
#: A page that has waited long enough: it gets what there is, after a moment.
NOW_S = 0.0
#: The deadline of requests that are not answered before it ends.
CLOSED_S = 0.05


class Rest:
    """Answers each request with its own number, once `open` is set; or with `error`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.asked: list[str] = []
        self.at_once = 0
        self.at_once_highest = 0
        self.error: OncelogError | None = None
        self.body = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        number = len(self.asked)
        self.at_once += 1
        self.at_once_highest = max(self.at_once_highest, self.at_once)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        if self.error is not None:
            await problem(self.error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.body or json.dumps(number).encode()})

    def by(self, role: str) -> Asker:
        return Asker(self, Caller(role), f"Bearer {role}", "127.0.0.1", "http://localhost:8080")


@pytest_asyncio.fixture
async def rest() -> AsyncIterator[Rest]:
    async with asyncio.timeout(DEADLINE_S):
        yield Rest()


def seen(block: Block) -> tuple[Any, str | None]:
    return block.value, None if block.problem is None else block.problem.code


async def test_viewers_of_a_role_share_one_request_and_its_answer(rest: Rest) -> None:
    """Fifty at once, and one that comes right after them. Another role asks with its own rights."""
    reading = Reading(fresh_s=60)
    rest.open.clear()
    many = [asyncio.ensure_future(reading.get(rest.by("a"), "/x")) for _ in range(50)]
    await until(lambda: bool(rest.asked), DEADLINE_S)
    rest.open.set()
    assert {seen(block) for block in await asyncio.gather(*many)} == {(1, None)}
    assert seen(await reading.get(rest.by("a"), "/x")) == (1, None)
    assert seen(await reading.get(rest.by("b"), "/x")) == (2, None)


async def test_fresh_answer_is_of_a_request_that_began_after_it_was_asked_for(rest: Rest) -> None:
    """What an action would lose must not come from before."""
    reading = Reading(fresh_s=60)
    assert seen(await reading.get(rest.by("a"), "/x")) == (1, None)
    assert seen(await reading.get(rest.by("a"), "/x", fresh=True)) == (2, None)
    assert seen(await reading.get(rest.by("a"), "/x")) == (2, None)


async def test_reader_gets_the_last_good_answer_after_the_deadline(rest: Rest) -> None:
    """With its time. The request goes on, so a later reader has the new one; and no second one is made meanwhile."""
    reading = Reading(fresh_s=0, deadline_s=DEADLINE_S)
    first = await reading.get(rest.by("a"), "/x")
    rest.open.clear()
    late = [await reading.get(rest.by("a"), "/x", until_s=NOW_S) for _ in range(3)]
    assert {seen(block) for block in late} == {(1, "no_answer")}
    assert {block.as_of_ms for block in late} == {first.as_of_ms}
    assert len(rest.asked) == 2
    rest.open.set()

    async def answered() -> bool:
        return seen(await reading.get(rest.by("a"), "/x")) == (2, None)

    await until(answered, DEADLINE_S)


async def test_page_that_asks_in_steps_waits_for_all_of_them_together(rest: Rest) -> None:
    """Three steps of a page about storage took 4.5 s while ZooKeeper was dead."""
    reading, loop = Reading(deadline_s=DEADLINE_S), asyncio.get_running_loop()
    rest.open.clear()
    began_s = loop.time()
    for step in range(3):
        block = await reading.get(rest.by("a"), f"/{step}", until_s=began_s + 0.05)
        assert seen(block) == (None, "no_answer")
    assert loop.time() - began_s < DEADLINE_S
    rest.open.set()
    assert seen(await reading.get(rest.by("a"), "/at-once", until_s=began_s)) == (4, None)
    reading.close()


async def test_failure_keeps_the_last_good_answer_and_a_refusal_does_not(rest: Rest) -> None:
    """503 says nothing about the figure; 403 says that the viewer may not see it any more."""
    reading = Reading(fresh_s=0)
    await reading.get(rest.by("a"), "/x")
    rest.error = ServiceUnavailable("the owner is away")
    away = await reading.get(rest.by("a"), "/x")
    assert (*seen(away), away.as_of_ms is None) == (1, "service_unavailable", False)
    rest.error = PermissionDenied("no right")
    refused = await reading.get(rest.by("a"), "/x")
    assert (*seen(refused), refused.as_of_ms) == (None, "permission_denied", None)


async def test_answer_that_is_no_json_is_a_problem_and_null_is_a_value(rest: Rest) -> None:
    """A block is never empty without a word."""
    reading = Reading(fresh_s=0)
    rest.body = b"null"
    null = await reading.get(rest.by("a"), "/x")
    assert (null.known, *seen(null)) == (True, None, None)
    rest.body = b"<html>"
    assert seen(await reading.get(rest.by("a"), "/x")) == (None, "error")


async def test_requests_at_once_are_limited(rest: Rest) -> None:
    """However many pages are open."""
    reading = Reading(deadline_s=CLOSED_S)
    rest.open.clear()
    async with asyncio.timeout(DEADLINE_S):
        blocks = await asyncio.gather(*(reading.get(rest.by("a"), f"/{each}") for each in range(3 * AT_ONCE_MAX)))
    assert {seen(block) for block in blocks} == {(None, "no_answer")}
    await until(lambda: rest.at_once == AT_ONCE_MAX, DEADLINE_S)  # the requests go on
    assert rest.at_once_highest == AT_ONCE_MAX
    reading.close()
    await until(lambda: rest.at_once == 0, DEADLINE_S)


async def test_curl_lines_and_paths_are_quoted() -> None:
    """A name with a quote, a slash or a line break stays one word of the shell, and one part of the path."""
    path = rest_path("/admin/v2/{}/x", "a/b'?\n$(id)", limit=5, after=None, every=True)
    assert path == "/admin/v2/a%2Fb%27%3F%0A%24%28id%29/x?limit=5&every=true"
    asker = Asker(Rest(), Caller("a"), "Bearer a", "", "http://h';id;'")
    line = asker.curl("/x?a=1&b=2", "POST", {"a": "'"})
    assert line == (
        "curl -X POST -H \"Authorization: Bearer $(cat token)\" -H 'Content-Type: application/json' "
        """-d '{"a": "'"'"'"}' 'http://h'"'"';id;'"'"'/x?a=1&b=2'"""
    )
