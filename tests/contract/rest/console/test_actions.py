"""Actions: only from a page of the console, rendered for the same viewer, and after a name was typed."""

import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.errors import Conflict, PermissionDenied
from oncelog.metadata.console.forms import VALID_S, FormTokens, csrf_of, told_of
from oncelog.metadata.console.policies import POLICIES
from oncelog.wire import owner_pb2
from tests.cluster.metadata.metadata_world import FakeOwner
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured, token
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, confirmed, seen_of, serving, text_of

pytestmark = pytest.mark.asyncio

TOPIC = "/console/topics/public/default/flights"
UNLOAD = f"{TOPIC}/unload"
DEADLINE_S = 60.0
NAME = "public/default/flights"
NAMESPACE = "/admin/v2/namespaces/public/default"
CLUSTER = "/admin/v2/clusters/test-cluster"


@dataclass
class Acting:
    """A topic `flights` with an owner, which notes what it is asked to unload. The viewer is a superuser."""

    browser: Browser
    owner: FakeOwner

    async def csrf(self, path: str = UNLOAD) -> str:
        """The token of the form on a page."""
        return await confirmed(self.browser, path)

    async def holds(self, topic: str, *, messages: int, first: int, **backlogs: int) -> None:
        """Let the owner say this of a topic that it serves."""
        record = await self.browser.admin.world.record(topic)
        subscriptions = {name: {"msg_backlog": backlog} for name, backlog in backlogs.items()}
        stats = json.dumps({"message_count": messages, "first_index": first, "subscriptions": subscriptions})
        self.owner.states.append(owner_pb2.TopicState(topic_id=record.topic_id, phase="serving", stats_json=stats))

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


async def test_action_is_done_after_its_name_was_typed(acting: Acting, caplog: pytest.LogCaptureFixture) -> None:
    """The page says what would be lost, and shows the request; afterwards the viewer is told, and it is in the audit
    log once, as the call that it was, with who made it and from where."""
    text = text_of(await acting.browser.page(UNLOAD))
    assert "No message is lost." in text
    port = acting.browser.admin.port
    assert f'curl -X PUT -H "Authorization: Bearer $(cat token)" http://127.0.0.1:{port}{FLIGHTS}/unload' in text
    answer = await acting.browser.send(UNLOAD, csrf=await acting.csrf(), typed=NAME)
    location = answer.headers["location"]
    assert (answer.status_code, location.partition(".")[0]) == (303, f"{TOPIC}?done=unload")
    assert acting.owner.unloading == [(await acting.browser.admin.world.record()).topic_id]
    (line,) = [vars(record)["fields"] for record in caplog.records if record.name == "oncelog.audit"]
    assert (line["method"], line["via"], line["role"], line["status"]) == ("PUT", "console", ROOT, 204)
    assert line["route"] == "/admin/v2/persistent/{tenant}/{namespace}/{topic}/unload"
    assert line["peer"].startswith("127.0.0.1")
    page = await acting.browser.page(location)
    assert "The topic was unloaded" in text_of(page)
    assert "unload." not in page, "no link of the page tells it again"


async def test_nobody_is_told_of_what_was_not_done(acting: Acting) -> None:
    """Not by an address that somebody typed, sent, or kept."""
    old = f"unload.{'0' * 10}{told_of(f'Bearer {token(ROOT)}', 'unload').partition('.')[2][10:]}"
    for query in ("unload", "unload.", f"delete.{told_of('', 'unload').partition('.')[2]}", old, "x.é"):
        assert "was unloaded" not in await acting.browser.page(f"{TOPIC}?done={query}")
        assert "was deleted" not in await acting.browser.page(f"{TOPIC}?done={query}")


async def test_action_is_refused_without_the_typed_name(acting: Acting) -> None:
    """The page asks again."""
    text = await acting.refused(422, csrf=await acting.csrf(), typed="flights")
    assert f"■ not done nothing was done: type {NAME} to confirm" in text
    assert "Unload the topic" in text


@pytest.mark.hazard("forged-form")
async def test_action_is_refused_without_the_token_of_its_own_form(acting: Acting) -> None:
    """Not without one, not with that of another page, and not with that of another role."""
    await acting.refused(403, typed=NAME)
    await acting.refused(403, typed=NAME, csrf="")
    await acting.refused(403, typed=NAME, csrf=await acting.csrf(f"{UNLOAD}?other=1"))
    own = await acting.csrf()
    await acting.browser.log_in("operator")
    text = await acting.refused(403, typed=NAME, csrf=own)
    assert "the form is not one of yours" in text


async def test_audit_log_says_who_was_refused_what(acting: Acting, caplog: pytest.LogCaptureFixture) -> None:
    """In the console as in REST: forms of other origins, forged ones, and those without the right. Two roles at one
    host have a line each."""
    route = "/console/topics/{tenant}/{namespace}/{topic}/unload"
    other = {"Origin": "http://attacker.example"}
    csrf = await acting.csrf()
    caplog.clear()
    await acting.refused(403, other, typed=NAME, csrf=csrf)
    await acting.browser.log_in("stranger")
    await acting.browser.page(UNLOAD, 403)
    await acting.browser.send("/console/logout", other)
    told = ("role", "route", "via", "method", "status", "code")
    assert [
        tuple(vars(record)["fields"].get(name) for name in told)
        for record in caplog.records
        if record.name == "oncelog.audit"
    ] == [
        (ROOT, route, "console", "POST", 403, "permission_denied"),
        ("stranger", route, "console", "GET", 403, "permission_denied"),
        (None, "/console/logout", "console", "POST", 403, "permission_denied"),
    ]


async def test_audit_log_says_who_sent_a_forged_form(acting: Acting, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer is a page with the form, not a problem; and so is that of a login without a token."""
    caplog.clear()
    await acting.refused(403, typed=NAME, csrf="0" * 90)
    await acting.browser.send("/console/login", token="x.y.z", next="/console/")
    told = ("role", "via", "route", "code")
    assert [
        tuple(vars(record)["fields"].get(name) for name in told)
        for record in caplog.records
        if record.name == "oncelog.audit"
    ] == [
        (ROOT, "console", "/console/topics/{tenant}/{namespace}/{topic}/unload", "permission_denied"),
        (None, "console", "/console/login", "unauthenticated"),
    ]


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
@pytest.mark.hazard("forged-form")
async def test_action_is_refused_from_another_origin(acting: Acting, headers: dict[str, str]) -> None:
    """Also if the token is right: it may have leaked."""
    await acting.refused(403, headers, typed=NAME, csrf=await acting.csrf())


async def test_action_without_the_right_is_not_offered_and_refused(acting: Acting) -> None:
    """A role without a right in the namespace gets no form, and its POST is refused before REST is asked."""
    await acting.browser.log_in("stranger")
    assert "has no right to admin in namespace public/default" in text_of(await acting.browser.page(UNLOAD, 403))
    await acting.refused(403, typed=NAME)


@pytest.mark.parametrize(
    "path",
    ["", "/delete", "/unload", "/policy?name=retention&do=remove", "/messages", "/proof", "/prove", "/producer?name=a",
     "/subscriptions/a", "/subscriptions/a/clear", "/subscriptions/a/seek?by=index&at=1"],
)  # fmt: skip
async def test_topic_that_is_gone_has_no_page(acting: Acting, path: str) -> None:
    """But one sentence, and a way to the others: also for an old bookmark of its deletion."""
    page = await acting.browser.page(f"/console/topics/public/default/absent{path}", 404)
    assert text_of(page).count("topic public/default/absent does not exist") == 1
    assert "refused" not in page
    assert 'href="/console/topics"' in page


async def test_topic_that_is_deleted_meanwhile_is_not_deleted_again_under_its_name(acting: Acting) -> None:
    """By a form that another replica took before, or this one before a restart."""
    path = f"{TOPIC}/delete"
    page = await acting.browser.page(path)
    form = {"csrf": await acting.csrf(path), "seen": seen_of(page), "typed": NAME}
    root = bearer(ROOT)
    await acting.browser.admin.change("DELETE", FLIGHTS, headers=root)
    await acting.browser.admin.change("PUT", FLIGHTS, headers=root)
    answer = await acting.browser.send(path, None, **form)
    assert answer.status_code == 409
    assert "nothing was done: what this form would change is not any more as its page showed it" in text_of(answer.text)
    form["csrf"] = await acting.csrf(path)
    form["seen"] = seen_of(answer.text)
    answer = await acting.browser.send(path, None, **form)
    assert answer.status_code == 303, "the page that refused can be confirmed"
    assert answer.headers["location"].partition(".")[0] == "/console/topics?done=delete", "the topic has no page now"
    await acting.browser.admin.refused("GET", FLIGHTS, 404, "topic_not_found", headers=root)


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


# --- what the other actions of topics and storage nodes say and do ----------------------------------------------------


async def test_action_on_a_topic_says_what_it_holds(acting: Acting) -> None:
    """The figures are those of its owner; of a partitioned topic, the sum of its partitions; or unknown, in words."""
    browser = acting.browser
    await confirmed(browser, f"{TOPIC}/snapshot", "No message is lost.")
    await confirmed(browser, f"{TOPIC}/truncate", "All messages of public/default/flights are deleted for ever")
    await confirmed(browser, f"{TOPIC}/delete", "public/default/flights is deleted for ever")
    await confirmed(browser, f"{TOPIC}/delete", "How many messages it has is unknown")
    await acting.holds("flights", messages=1_250, first=50, billing=7, audit=3)
    holds = "It has 1 200 messages and 2 subscriptions: billing (backlog 7), audit (backlog 3)."
    await confirmed(browser, f"{TOPIC}/truncate", holds)
    await browser.admin.change("PUT", f"{FLIGHTS}2/partitions", json=3, headers=bearer(ROOT))
    for number in (0, 2):
        await browser.admin.replica.look_up(f"{NAME}2-partition-{number}", create=True)
        await acting.holds(f"flights2-partition-{number}", messages=10, first=0, billing=2)
    text = text_of(await browser.page(f"{TOPIC}2/delete-partitions"))
    assert "It has 20 messages and 1 subscription: billing (backlog 4)." in text
    assert "unknown" not in text


async def test_page_of_a_topic_leads_to_its_actions(acting: Acting) -> None:
    """Only with the right, and a partitioned topic to those that it has."""
    page = await acting.browser.page(TOPIC)
    for name in ("unload", "snapshot", "truncate", "delete"):
        assert f'href="{TOPIC}/{name}"' in page
    assert 'name="name" value="messageTTL"' in page
    await acting.browser.admin.change("PUT", f"{FLIGHTS}2/partitions", json=3, headers=bearer(ROOT))
    page = await acting.browser.page(f"{TOPIC}2")
    assert f'href="{TOPIC}2/delete-partitions"' in page
    assert f'href="{TOPIC}2/unload"' not in page
    await acting.browser.log_in("stranger")
    assert "truncate" not in await acting.browser.page(TOPIC)


async def test_policy_is_set_and_removed(acting: Acting) -> None:
    """The page shows in words what holds now and from where, and what would then."""
    browser = acting.browser
    path = f"{TOPIC}/policy?name=messageTTL&number=7&number_unit=days&do=set"
    now = "Expiry of messages of public/default/flights now: {}."
    form = await confirmed(browser, path, now.format("never , by default"))
    await confirmed(browser, path, "Then: after 7 days , set at this topic.")
    assert (await browser.send(path, csrf=form, typed=NAME)).status_code == 303
    assert await browser.admin.get(f"{FLIGHTS}/messageTTL", headers=bearer(ROOT)) == 604_800
    path = f"{TOPIC}/policy?name=messageTTL&do=remove"
    form = await confirmed(browser, path, now.format("after 7 days , set here"))
    assert (await browser.send(path, csrf=form, typed=NAME)).status_code == 303
    assert await browser.admin.get(f"{FLIGHTS}/messageTTL", headers=bearer(ROOT)) is None
    path = f"{TOPIC}/policy?name=retention&time=0&time_unit=days&do=set"
    answer = await browser.send(path, csrf=await confirmed(browser, path), typed=NAME)
    assert "■ not done retentionTimeInMinutes" in text_of(answer.text)
    assert answer.status_code == 422


async def test_link_of_a_policy_leads_to_no_other_request(acting: Acting) -> None:
    """A stranger may write the link, and the viewer types what the page asks for."""
    for query, detail in (
        ("name=truncate&do=remove", "name: a policy is one of"),
        ("name=..%2F..&do=remove", "name: a policy is one of"),
        ("name=messageTTL&do=set&number=an+hour", "number: give a whole number"),
        ("name=messageTTL&do=set&number=7&number_unit=years", "number_unit: give seconds, minutes, hours, days"),
        ("name=producerLeaseExpiry&do=set", "number: give a whole number"),
        ("name=backlogQuota&do=set&action=explode", "action: give producer_request_hold"),
        ("name=messageTTL", "do: must be set or remove"),
    ):
        assert detail in text_of(await acting.browser.page(f"{TOPIC}/policy?{query}", 422))


async def test_every_policy_says_what_it_loses(acting: Acting) -> None:
    """A new one is not changed by the console before it has its sentence."""
    found: set[str] = set()
    for base in (FLIGHTS, NAMESPACE, CLUSTER):
        found |= set(await acting.browser.admin.get(f"{base}/policies", headers=bearer(ROOT)))
    assert found == set(POLICIES)


async def test_policy_of_a_namespace_is_set_and_removed_by_its_admin(acting: Acting) -> None:
    """With a form for each on its page, which also says what comes from the cluster. Others see no form."""
    browser = acting.browser
    await browser.admin.change("POST", f"{NAMESPACE}/permissions/keeper", json=["admin"], headers=bearer(ROOT))
    await browser.admin.change("POST", f"{CLUSTER}/messageTTL", json=86_400, headers=bearer(ROOT))
    assert (await browser.log_in("keeper")).status_code == 303
    page = "/console/policies/public/default"
    text = text_of(await browser.page(page))
    assert "Expiry of messages after 1 day from the cluster messageTTL" in text
    assert "Creation of topics by use on: a topic is created by its first use by default" in text
    path = f"{page}/policy?name=messageTTL&number=7&number_unit=days&do=set"
    form = await confirmed(browser, path, "Then: after 7 days , set at this namespace.")
    answer = await browser.send(path, csrf=form, typed="public/default")
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, page)

    async def shown() -> bool:
        """Pages share answers of up to 1 s ago."""
        return "after 7 days set here" in text_of(await browser.page(page))

    await until(shown, DEADLINE_S)
    assert "Remove from this namespace…" in await browser.page(page)
    path = f"{page}/policy?name=messageTTL&do=remove"
    form = await confirmed(browser, path, "Then this namespace does not set it, and the next level decides.")
    assert (await browser.send(path, csrf=form, typed="public/default")).status_code == 303
    assert await browser.admin.get(f"{NAMESPACE}/messageTTL", headers=bearer(ROOT)) is None
    await browser.log_in("stranger")
    assert "Set…" not in await browser.page(page)
    assert "no right to admin" in text_of(await browser.page(path, 403))


async def test_policy_of_the_cluster_is_for_superusers(acting: Acting) -> None:
    """It is confirmed with the beginning of the cluster's id. The page leads to the policies of namespaces."""
    browser = acting.browser
    page = await browser.page("/console/policies")
    assert "Expiry of messages never by default" in text_of(page)
    assert 'href="/console/policies/public/default"' in page
    cluster = CLUSTER.rpartition("/")[2]
    path = f"/console/clusters/{cluster}/policy?name=deduplication&state=off&do=set"
    form = await confirmed(browser, path, f"Deduplication of cluster {cluster[:8]} now: on:")
    await confirmed(browser, path, "sent again is stored again , set at this cluster.")
    answer = await browser.send(path, csrf=form, typed=cluster[:8])
    assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/policies")
    assert await browser.admin.get(f"{CLUSTER}/deduplication", headers=bearer(ROOT)) is False
    await browser.page(path.replace(cluster, "another"), 404)
    await browser.log_in("stranger")
    assert "The policies of the cluster are for superusers." in text_of(await browser.page("/console/policies"))
    assert "is not a superuser" in text_of(await browser.page(path, 403))


async def test_namespace_that_does_not_exist_has_no_policies(acting: Acting) -> None:
    """One sentence instead of empty blocks."""
    assert "there is no namespace public/missing" in text_of(
        await acting.browser.page("/console/policies/public/missing", 404)
    )


async def test_action_on_a_storage_node_is_for_superusers(acting: Acting) -> None:
    """It says what becomes of the copies, and how many nodes are left to write to."""
    browser, node = acting.browser, "0f" * 16
    path = f"/console/storage/nodes/{node}/decommission"
    form = await confirmed(browser, path, "its copies are moved to other nodes")
    await confirmed(browser, path, "Other storage nodes that are live and writable: 0 .")
    answer = await browser.send(path, csrf=form, typed="0f0f0f0f")
    assert answer.status_code == 404
    assert "■ not done" in text_of(answer.text)
    await confirmed(browser, path.replace("decommission", "read-only"), "New ledgers store nothing on it.")
    await confirmed(browser, path.replace("decommission", "writable"), "New ledgers use it again")
    await confirmed(browser, path.replace("decommission", "keep"), "It stays, and is writable again.")
    await browser.log_in("stranger")
    assert "is not a superuser" in text_of(await browser.page(path, 403))


async def test_form_of_before_a_restart_is_shown_again() -> None:
    """Without tokens its value was made by the former process. The figures are those of now."""
    async with serving() as browser:
        await browser.admin.owner()
        await browser.admin.change("PUT", FLIGHTS)
        await browser.admin.replica.look_up(NAME)
        answer = await browser.send(UNLOAD, csrf=csrf_of("Bearer former")(UNLOAD), typed=NAME)
        assert answer.status_code == 403
        assert "older than the last start of this metadata service; look at the figures of now" in text_of(answer.text)
        form = re.search(r'name="csrf" value="([0-9a-f]+)"', answer.text)
        assert form is not None
        assert (await browser.send(UNLOAD, csrf=form[1], typed=NAME)).status_code == 303


async def test_form_acts_once_and_within_ten_minutes() -> None:
    """A second click, or a form that was left open, says so and does nothing."""
    url, now_s = "/console/x?a=1", time.time()
    tokens = FormTokens(now_s=lambda: now_s)
    one, two = csrf_of("Bearer x")(url), csrf_of("Bearer x")(url)
    for each in (one, two):
        assert tokens.check({"csrf": each}, "Bearer x", url) == each
        tokens.take(each)
        with pytest.raises(Conflict, match="sent twice"):
            tokens.take(each)
    later = csrf_of("Bearer x")(url)
    now_s += VALID_S + 1
    with pytest.raises(Conflict, match="older than 10 minutes"):
        tokens.take(later)
    with pytest.raises(PermissionDenied):
        tokens.check({"csrf": f"{int(now_s):010x}{later[10:]}"}, "Bearer x", url)
