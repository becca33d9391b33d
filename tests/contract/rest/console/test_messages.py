"""The page of messages: where one is, what is stored, and that nothing stored becomes part of the page."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.names import parse_topic
from oncelog.metadata.console.payloads import JsonNode, hexadecimal, indented_json, json_tree, shown_bytes
from oncelog.rpc.codecs.finding_codec import FIND_MESSAGE, READ_STORED_MESSAGES
from oncelog.runtime.security import OPEN, Security
from oncelog.wire import finding_pb2 as pb
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import Browser, block_of, serving, text_of
from tests.contract.rest.observing.test_messages import Owner, stored

TOPIC = "/console/topics/public/default/flights/messages"
MARKUP = "<script>alert('1')</script>\"'><b onclick=x>"


@asynccontextmanager
async def messages(security: Security = OPEN, **options: Any) -> AsyncIterator[tuple[Browser, Owner]]:
    """The topic flights, at an owner."""
    async with serving(security, **options) as console:
        fake, owner = await console.admin.owner(), Owner(console.admin)
        fake.server.unary(FIND_MESSAGE, owner.find)
        fake.server.unary(READ_STORED_MESSAGES, owner.read)
        await console.admin.change("PUT", FLIGHTS, headers=bearer(ROOT))
        await console.admin.replica.look_up("public/default/flights")
        yield console, owner


async def found(console: Browser, owner: Owner, **changed: Any) -> str:
    """What the page says of a message that the owner found."""
    owner.found = json.loads(json.dumps(owner.found)) | changed
    # Another name each time: an answer is shared for a second. The id as it is copied from the page, with a thin space.
    return text_of(
        block_of(await console.page(f"{TOPIC}?producer=till{len(owner.asked)}&sequence=%E2%80%AF7"), "found")
    )


@pytest.mark.asyncio
async def test_message_is_found_by_name_and_said_in_words() -> None:
    """Stored where, refused how often, or why it is not known."""
    async with messages() as (console, owner):
        text = await found(console, owner)
        assert "● stored as 3:5:0, index 7. show it" in text
        assert "Answered without being stored: 2 × duplicate, the last" in text
        assert "from 10.0.0.1:5. Counted since this owner took the topic over" in text
        assert owner.asked[0].sequence_id == 7
        refusals = owner.found["refusals"] | {"complete": False, "possible_counts": {"stale_sequence": 1}}
        text = await found(console, owner, refusals=refusals)
        assert "; perhaps 1 × stale_sequence, in batches with gaps between their ids, the last" in text
        assert "are not remembered" in text
        nothing: dict[str, Any] = {
            "counts": {},
            "possible_counts": {},
            "first_ms": None,
            "last_ms": None,
            "last_from": None,
        }
        text = await found(
            console, owner, state="never_stored", explanation="never stored: so and so", index=None,
            append_time_ms=None, refusals=refusals | nothing,
        )  # fmt: skip
        assert "▲ never stored: so and so. No batch with this id was refused." in text
        text = await found(console, owner, state="unknown_producer", explanation="no producer has this name")
        assert "○ no producer has this name." in text
        page = await console.page(f"{TOPIC}?producer=till")
        assert "sequence_id: " in text_of(block_of(page, "found")), "REST names the field that is missing"
        assert "show it" not in page
        page = await console.page(f"{TOPIC}?producer=till&sequence=abc")
        assert "■ refused sequence_id: must be a whole number, not 'abc'" in text_of(block_of(page, "found"))


@pytest.mark.asyncio
async def test_list_below_a_message_that_was_found_shows_its_neighbours() -> None:
    """Ten messages before it and those behind it, and not the end of the log. A place of the address goes first, and
    without a message that was found the list is that of the newest ones."""
    async with messages() as (console, owner):
        owner.found = json.loads(json.dumps(owner.found)) | {"index": 500}
        await console.page(f"{TOPIC}?producer=till&sequence=7")
        await console.page(f"{TOPIC}?producer=till&sequence=7&place=index&at=3")
        owner.found |= {"index": 2}
        await console.page(f"{TOPIC}?producer=till&sequence=8")
        assert [each.start.index for each in owner.read_asked] == [490, 3, 0]
        owner.found |= {"index": None, "state": "never_stored"}
        await console.page(f"{TOPIC}?producer=till&sequence=9")
        assert owner.read_asked[-1].start.WhichOneof("start") != "index"


@pytest.mark.asyncio
async def test_partitions_are_asked_for_a_message_and_listed_for_the_others() -> None:
    async with messages() as (console, owner):
        await console.admin.world.topics.create(parse_topic("split"), partitions=2)
        for number in range(2):
            await console.admin.replica.look_up(f"public/default/split-partition-{number}")
        split = TOPIC.replace("flights", "split")
        page = await console.page(f"{split}?producer=p&sequence=7")
        text = text_of(block_of(page, "found"))
        assert "public/default/split-partition-0: stored as 3:5:0" in text
        assert "public/default/split-partition-1: stored as 3:5:0" in text
        assert f'href="{split.replace("split/", "split-partition-1/")}?place=index&amp;at=7&amp;limit=1"' in page
        assert f'href="{split.replace("split/", "split-partition-1/")}">1</a>' in page
        owner.found["state"] = "unknown_producer"
        text = text_of(block_of(await console.page(f"{split}?producer=q&sequence=7"), "found"))
        assert "2 partitions know no producer of this name." in text


@pytest.mark.asyncio
async def test_stored_markup_stays_text() -> None:
    """In keys, values, properties, names and what was typed; the page has one script, its own."""
    async with messages() as (console, owner):
        markup = MARKUP.encode()
        owner.page = pb.StoredMessagesAnswer(
            messages=[
                stored(0, value=markup, value_bytes=len(markup), key=markup, producer_name=MARKUP,
                       properties={MARKUP: MARKUP}),
                stored(1, value=b"\xff<script>", value_bytes=9, key=b"\xff", truncated=True),
                stored(2, value_bytes=9 << 20, in_chunks=True),
                stored(3, null_value=True), stored(4, encrypted=True),
            ],
            next_index=5, end_index=9,
        )  # fmt: skip
        owner.found["explanation"] = MARKUP
        typed = {"producer": MARKUP, "sequence": "7", "place": "index", "at": "0", "show": "text"}
        page = await console.page(TOPIC, params=typed)
        assert text_of(page).count(MARKUP) == 6, "five stored ones and the explanation"
        assert re.findall(r"<script[^>]*>", page) == [re.findall(r'<script type="module" src="[^"]*">', page)[0]]
        assert "<b onclick" not in page
        assert 'value="&lt;script&gt;' in page
        text = text_of(block_of(page, "messages"))
        assert "000000 ff 3c 73 63 72 69 70 74 3e .<script> no text in UTF-8" in text
        assert "in chunks: not shown – 12" in text
        assert "cut: it is longer" in text
        assert ("no value – 13" in text, "encrypted: not shown – 14" in text) == (True, True)


@pytest.mark.asyncio
async def test_pages_lead_to_each_other_and_what_cannot_be_read_is_named() -> None:
    """What is typed wrong is refused with the name of its field."""
    async with messages() as (console, owner):
        owner.page = pb.StoredMessagesAnswer(
            first_index=10, begin_index=100, next_index=103, end_index=200,
            unreadable=pb.UnreadableMessages(first_index=100, count=3, reason="no storage node gives entry 3:5"),
        )  # fmt: skip
        page = await console.page(f"{TOPIC}?place=index&at=100&show=hex")
        block = block_of(page, "messages")
        assert 'place=index&amp;at=50&amp;show=hex">older' in block
        assert 'place=index&amp;at=103&amp;show=hex">newer' in block
        assert 'show=hex">the newest' in block
        assert "The log has messages 10 to 199." in text_of(block)
        assert "■ cannot be read 3 messages from index 100 on: no storage node gives entry 3:5" in text_of(block)
        [asked] = owner.read_asked
        assert (asked.start.index, asked.limit, asked.value_bytes_max) == (100, 50, 400)
        page = await console.page(f"{TOPIC}?place=time&at=2026-03-01 12:00:00")
        assert "2026-03-01 12:00:00 (UTC)" in page, "the field says which zone a time without one is in"
        await console.page(f"{TOPIC}?place=index&at=7&limit=1")
        assert owner.read_asked[1].start.time_ms == 1_772_366_400_000
        assert (owner.read_asked[2].limit, owner.read_asked[2].value_bytes_max) == (1, 65_536)
        for query, field in (("place=index&at=x", "index"), ("place=time&at=soon", "time_ms"), ("limit=0", "limit")):
            assert f"■ refused {field}: " in text_of(block_of(await console.page(f"{TOPIC}?{query}"), "messages"))
        topic = TOPIC.removesuffix("/messages")
        assert f'href="{TOPIC}"' in await console.page(topic)
        assert f'action="{TOPIC}"' in await console.page(f"{topic}/producer?name=till")
        for query in ("place=there&at=1", "show=colours"):
            assert query.partition("=")[0] in text_of(await console.page(f"{TOPIC}?{query}", 422))


@pytest.mark.asyncio
async def test_values_need_consume_and_a_console_that_shows_them(tmp_path: Path) -> None:
    """An administrator finds messages, and does not read them. With the setting, nobody reads them here."""
    secret = stored(0, value=b"a secret value", value_bytes=14, key=b"a secret key")
    async with messages(secured(tmp_path)) as (console, owner):
        owner.page = pb.StoredMessagesAnswer(messages=[secret], next_index=1, end_index=1)
        for role in ("admin", "consume"):
            path = f"/admin/v2/namespaces/public/default/permissions/{role}-only"
            await console.admin.change("POST", path, headers=bearer(ROOT), json=[role])
        await console.log_in("admin-only")
        page = await console.page(f"{TOPIC}?producer=till&sequence=7")
        assert "stored as 3:5:0, index 7" in text_of(block_of(page, "found"))
        assert "○ hidden" in text_of(block_of(page, "messages"))
        assert "secret" not in page
        assert owner.read_asked == []
        await console.log_in("consume-only")
        assert "a secret value" in await console.page(TOPIC)
    async with messages(payloads=False) as (console, owner):
        secret.ClearField("value")
        secret.ClearField("key")
        owner.page = pb.StoredMessagesAnswer(messages=[secret], next_index=1, end_index=1)
        page = text_of(await console.page(f"{TOPIC}?place=index&at=0&limit=1"))
        assert "Values, keys and properties are hidden by a setting of this console." in page
        assert [each.with_content for each in owner.read_asked] == [False]


def of_log(begin: int, end: int, *rows: pb.StoredMessage) -> pb.StoredMessagesAnswer:
    """A page of a log of 1,000 messages that has looked at these."""
    return pb.StoredMessagesAnswer(messages=rows, begin_index=begin, next_index=end, end_index=1_000)


@pytest.mark.asyncio
async def test_search_goes_on_over_pages_and_says_where_it_has_looked() -> None:
    """Until the page is full, the log has ended, or it has waited long enough. What was typed stays in the form."""
    async with messages() as (console, owner):
        row = stored(150, value=b'{"order": 17}', value_bytes=13, key=b"k")
        owner.page = of_log(0, 100)
        owner.pages = {100: of_log(100, 200, row), 200: of_log(200, 1_000)}
        page = await console.page(f"{TOPIC}?key=k&text=order&filter=.order+%3D%3D+17&by=till")
        text = text_of(block_of(page, "messages"))
        assert "Searched from index 0 to 999, of 1 000 messages: 1 message found. Nothing is left to search." in text
        first, *_ = owner.read_asked
        assert [each.start.index for each in owner.read_asked[1:]] == [100, 200]
        found = first.filter
        assert (found.key, found.text, found.condition, found.producer_name) == (b"k", b"order", ".order == 17", "till")
        assert not first.backwards
        assert 'name="filter" maxlength="1000" placeholder=".order == 17" value=".order == 17"' in page
        full = of_log(0, 7, *(stored(each, value=b"x", value_bytes=1) for each in range(5)))
        owner.page, owner.pages = full, {}
        page = await console.page(f"{TOPIC}?text=x&limit=5")
        assert "Searched from index 0 to 6, of 1 000 messages: 5 messages found. Go on" in text_of(page)
        assert f'href="{TOPIC}?text=x&amp;place=index&amp;at=7"' in page


@pytest.mark.asyncio
async def test_search_goes_backwards_and_the_newest_are_followed_live() -> None:
    """The newest first; the page that follows them is the only one of the topic's messages that is live."""
    async with messages() as (console, owner):
        owner.page = of_log(900, 1_000, stored(999, value=b"new", value_bytes=3))
        page = await console.page(f"{TOPIC}?order=newest&text=new&limit=1")
        assert "Searched from index 900 to 999, of 1 000 messages: 1 message found." in text_of(page)
        assert f'href="{TOPIC}?order=newest&amp;text=new&amp;place=index&amp;at=900"' in page
        assert owner.read_asked[0].backwards
        assert "data-live" not in page
        page = await console.page(f"{TOPIC}?tail=on&text=new")
        assert "The newest messages, as they come" in text_of(page)
        assert 'data-live="/console/live?page=' in page
        assert owner.read_asked[-1].backwards
        await console.page(f"/console/live?page={TOPIC}", 404)


@pytest.mark.asyncio
async def test_hidden_values_are_not_searched() -> None:
    """An answer to "which values contain this?" shows them, too."""
    async with messages(payloads=False) as (console, owner):
        for name in ("key", "text", "filter"):
            page = await console.page(f"{TOPIC}?{name}=x", 422)
            assert f"{name}: keys and values are hidden by a setting of this console" in text_of(page)
        assert owner.read_asked == []
        page = await console.page(TOPIC)
        assert 'name="by"' in page
        assert 'name="text"' not in page


@pytest.mark.asyncio
async def test_json_of_one_message_is_a_tree_and_directions_of_text_are_shown() -> None:
    """Other values stay text. A key that would turn the text behind it round is shown as what it is."""
    async with messages() as (console, owner):
        value = b'{"order": {"id": 1.10, "lines": [{"sku": "a"}, {}]}}'
        owner.page = of_log(0, 1, stored(0, value=value, value_bytes=len(value), key="gpj.\u202eexe".encode()))
        page = block_of(await console.page(f"{TOPIC}?place=index&at=0&limit=1"), "messages")
        assert page.count('<details class="tree"') == 4
        assert page.count('<details class="tree" open>') == 2
        assert '"id": 1.10' in text_of(page)
        assert "gpj.⟨U+202E⟩exe" in page
        assert "\u202e" not in page
        owner.page = of_log(0, 1, stored(0, value=b"plain", value_bytes=5))
        page = block_of(await console.page(f"{TOPIC}?place=index&at=1&limit=1"), "messages")
        assert "<pre>plain</pre>" in page
        assert "no JSON" not in page


def words(node: JsonNode) -> str:
    """The value again, in the tokens of the tree."""
    if not node.children:
        return node.text
    inner = ",".join(words(each) if node.is_list else f"{each.name}:{words(each)}" for each in node.children)
    return f"[{inner}]" if node.is_list else f"{{{inner}}}"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1.10,"a":[],"b":{"c":[1,{"d":"x, {y}: \\"z\\""}]},"e":{}}', "[1,[2,[]],null]",
        '{"big":123456789012345678901234567890}',
    ],
)  # fmt: skip
def test_tree_has_the_tokens_of_what_is_stored(text: str) -> None:
    """No number or name is read and written again."""
    tree = json_tree(text)
    assert tree is not None
    assert words(tree) == text


@pytest.mark.parametrize("text", ["17", '"a"', "{}", "[]", "[" * 30 + "1" + "]" * 30, "[" + "1," * 9_000 + "1]"])
def test_value_without_parts_or_with_too_many_is_no_tree(text: str) -> None:
    assert json_tree(text) is None


def shown(form: str, **fields: str | None) -> tuple[str, str]:
    found = shown_bytes({"value": None, "value_base64": None} | fields, "value", form)
    assert found is not None
    return found.text, found.note


def test_values_are_shown_in_the_form_that_was_asked_for_or_the_page_says_why_not() -> None:
    assert shown("text", value="a\nb") == ("a\nb", "")
    assert shown("json", value='{"a":1}') == ('{\n  "a": 1\n}', "")
    assert shown_bytes({"value": '{"a":1}', "value_base64": None}, "value", "json", alone=False) == (
        '{"a":1}',
        "",
        None,
    )
    assert shown("json", value='{"a":') == ('{"a":', "no JSON")
    assert shown("hex", value="é") == ("000000  c3 a9" + " " * 44 + "..", "")
    assert shown("text", value_base64="/w==")[1] == "no text in UTF-8"
    assert shown("text", value_base64="AMM=")[1] == "no text in UTF-8"
    assert shown("text", value_base64="YQA=") == ("000000  61 00" + " " * 44 + "a.", "text with control characters")
    cut = shown_bytes({"value": None, "value_base64": "AMM=", "truncated": True}, "value", "text")
    assert cut is not None
    assert cut.note == "text with control characters"
    assert shown_bytes({"value": None, "value_base64": None}, "value", "text") is None
    assert hexadecimal(bytes(17)).splitlines()[1].startswith("000010  00 ")


def test_json_is_indented_and_not_changed() -> None:
    """Numbers of any length and keys that occur twice stay as they are; deep nesting costs no more than its text."""
    text = '{"price":1.10,"big":123456789012345678901234567890,"a":[],"a":{"b":[1,{"c":"x, {y}: \\"z\\""}]},"e":{}}'
    indented = indented_json(text)
    assert indented is not None
    assert re.sub(r"\s", "", indented) == re.sub(r"\s", "", text)
    assert '"price": 1.10,\n  "big": 123456789012345678901234567890,\n  "a": [],\n  "a": {\n    "b": [\n' in indented
    assert indented_json("[" * 5_000 + "]" * 5_000) is None
    deep = indented_json("[" * 300 + "1" + "]" * 300)
    assert deep is not None
    assert len(deep) < 30_000
    assert indented_json("1" * 5_000) is None
