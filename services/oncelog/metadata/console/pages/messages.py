"""Messages of a topic: what became of one, by producer name and sequence id; what is stored, page by page; a search by
key, text, condition or producer; and the newest ones as they come.

A search goes on over as many pages of REST as it can while the page may wait, and then says from where to where it has
looked. The next page goes on there.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.payloads import FORMS, ShownBytes, shown_bytes
from oncelog.metadata.console.rest_reading import Block, rest_path

#: {value of the field "place": parameter of REST}
_PLACES = {"index": "index", "time": "time_ms", "id": "message_id"}
#: {field of the form: parameter of REST}; the first three say something about keys and values.
SEARCHED = {"key": "key", "text": "text", "filter": "filter", "by": "producer_name"}
_OF_PAYLOADS = ("key", "text", "filter")
#: Of each value of a list; a message alone is shown with more.
_LIST_BYTES, _ONE_BYTES = 400, 65_536
#: A search ends after so many pages of REST, or so long before the page has waited for its whole time.
_SEARCH_PAGES, _SEARCH_RESERVE_S = 32, 0.4
_TOPIC = "/admin/v2/persistent/{}/{}/{}"


@dataclass(slots=True)
class Looked:
    """What a look at the log has found. reads: its pages of REST, the last one is the newest answer. rows: in order.
    from_index, to_index: where it has looked, to before to_index. on_at: `at` of the page that goes on; None: it has
    looked at everything. older_at, newer_at: of the pages of older and newer messages."""

    reads: list[Block]
    rows: list[dict[str, Any]] = field(default_factory=list)
    from_index: int = 0
    to_index: int = 0
    on_at: int | None = None
    older_at: int | None = None
    newer_at: int | None = None


async def collect(view: View) -> dict[str, Any]:
    """Raises InvalidArgument."""
    query, parts = view.query, (view.parts["tenant"], view.parts["namespace"], view.parts["topic"])
    form = query.get("show")
    if form is not None and form not in FORMS:
        raise InvalidArgument(f"show={form}: give {', '.join(FORMS)}", field="show")
    targets = [rest_path(f"{_TOPIC}/partitions", *parts)]
    if "producer" in query or "sequence" in query:
        name, sequence_id = query.get("producer"), _plain(query.get("sequence", ""))
        targets.append(
            rest_path(f"{_TOPIC}/messages/find", *parts, producer_name=name, sequence_id=sequence_id),
        )
    looked, (partitions, *found) = await asyncio.gather(_look(view, parts), view.read_all(*targets))
    messages = looked.reads[-1]
    messages.require_place()
    known = [row for row in found[0].value if row["state"] != "unknown_producer"] if found and found[0].known else []
    alone = query.get("limit") == "1"
    return {
        "alone": alone,
        "backwards": is_backwards(view),
        "form": form or "text",
        "forms": FORMS,
        "found": found,
        "found_rows": known,
        "looked": looked,
        "messages": messages,
        "partitions": partitions.value["partitions"] if partitions.known else 0,
        "rows": [(row, shown_bytes(row, "key", "text"), _value(row, form, alone=alone)) for row in looked.rows],
        "searches": any(query.get(name) for name in SEARCHED),
        "tail": is_tail(view),
    }


def is_tail(view: View) -> bool:
    """Whether the page shows the newest messages as they come."""
    return view.query.get("tail") == "on"


def is_backwards(view: View) -> bool:
    return is_tail(view) or view.query.get("order") == "newest"


def _value(row: dict[str, Any], form: str | None, *, alone: bool) -> ShownBytes | None:
    """form None: JSON as a tree where it is some, if the message has the page for itself; otherwise as text."""
    if form is None and alone:
        found = shown_bytes(row, "value", "json")
        return found if found is None or found.tree is not None else shown_bytes(row, "value", "text")
    return shown_bytes(row, "value", form or "text", alone=alone)


async def _look(view: View, parts: tuple[str, str, str]) -> Looked:
    """Raises InvalidArgument."""
    asked, backwards = _asked(view), is_backwards(view)
    looked = Looked([])
    ends_s = view.until_s - _SEARCH_RESERVE_S
    while True:
        read = await view.read(rest_path(f"{_TOPIC}/messages", *parts, **asked))
        looked.reads.append(read)
        if not read.known:
            return looked
        page = read.value
        _note(looked, page, backwards=backwards)
        full = len(looked.rows) >= int(asked["limit"]) or page["unreadable"]
        searches = any(view.query.get(name) for name in SEARCHED) and not is_tail(view)
        late = asyncio.get_running_loop().time() >= ends_s or len(looked.reads) >= _SEARCH_PAGES
        if not searches or full or late or looked.on_at is None:
            return looked
        asked = {name: value for name, value in asked.items() if name not in _PLACES.values()}
        asked |= {"index": looked.on_at, "limit": int(asked["limit"]) - len(looked.rows)}


def _note(looked: Looked, page: Mapping[str, Any], *, backwards: bool) -> None:
    """Add a page of REST."""
    first = not looked.rows and len(looked.reads) == 1
    looked.from_index = page["looked_from"] if first else min(looked.from_index, page["looked_from"])
    looked.to_index = page["looked_to"] if first else max(looked.to_index, page["looked_to"])
    looked.rows += page["messages"]
    looked.on_at = page["previous_index" if backwards else "next_index"]
    looked.older_at = page["previous_index"] if backwards or first else looked.older_at
    looked.newer_at = page["next_index"] if first or not backwards else looked.newer_at


def _asked(view: View) -> dict[str, Any]:
    """The parameters of the first page of REST. Raises InvalidArgument."""
    query = view.query
    place, at, limit = query.get("place", ""), query.get("at", ""), query.get("limit", "50")
    asked: dict[str, Any] = {}
    if at and not is_tail(view):
        if place not in _PLACES:
            raise InvalidArgument(f"place={place}: give {', '.join(_PLACES)}", field="place")
        asked = {_PLACES[place]: _time_ms(at) if place == "time" else _plain(at)}
    hidden = [name for name in _OF_PAYLOADS if query.get(name)] if not view.payloads else []
    if hidden:
        message = f"{hidden[0]}: keys and values are hidden by a setting of this console, so they are not searched"
        raise InvalidArgument(message, field=hidden[0])
    if view.payloads:
        asked["value_bytes_max"] = _ONE_BYTES if limit == "1" else _LIST_BYTES
    else:
        asked["values"] = False
    asked |= {SEARCHED[name]: query[name] for name in SEARCHED if query.get(name)}
    return asked | {"limit": limit, "backwards": True if is_backwards(view) else None}


def _plain(text: str) -> str:
    """A number as REST takes it. Pages show numbers with thin spaces, and that is how they are copied."""
    return "".join(text.split())


def _time_ms(text: str) -> object:
    """A date and time in UTC, or milliseconds since 1970, as they are; REST refuses what is neither."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


PAGE = Page(
    "/console/topics/{tenant}/{namespace}/{topic}/messages", "Messages", "messages.html", collect, interval_s=2.0,
    live_when=is_tail,
)  # fmt: skip
