"""Messages of a topic: what became of one, by producer name and sequence id, and what is stored, page by page."""

from datetime import UTC, datetime
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.payloads import FORMS, shown_bytes
from oncelog.metadata.console.rest_reading import rest_path

#: {value of the field "place": parameter of REST}
_PLACES = {"index": "index", "time": "time_ms", "id": "message_id"}
#: Of each value of a list; a message alone is shown with more.
_LIST_BYTES, _ONE_BYTES = 400, 65_536
_TOPIC = "/admin/v2/persistent/{}/{}/{}"


async def collect(view: View) -> dict[str, Any]:
    query, parts = view.query, (view.parts["tenant"], view.parts["namespace"], view.parts["topic"])
    form = query.get("show", "text")
    if form not in FORMS:
        raise InvalidArgument(f"show={form}: give {', '.join(FORMS)}", field="show")
    targets = [rest_path(f"{_TOPIC}/partitions", *parts), _messages(view, parts)]
    if "producer" in query or "sequence" in query:
        targets.append(
            rest_path(
                f"{_TOPIC}/messages/find",
                *parts,
                producer_name=query.get("producer"),
                sequence_id=_plain(query.get("sequence", "")),
            )
        )
    partitions, messages, *found = await view.read_all(*targets)
    messages.require_topic()
    rows = messages.value["messages"] if messages.known else []
    known = [row for row in found[0].value if row["state"] != "unknown_producer"] if found and found[0].known else []
    alone = query.get("limit") == "1"
    return {
        "form": form,
        "forms": FORMS,
        "found": found,
        "found_rows": known,
        "messages": messages,
        "partitions": partitions.value["partitions"] if partitions.known else 0,
        "rows": [(row, shown_bytes(row, "key", "text"), shown_bytes(row, "value", form, alone=alone)) for row in rows],
    }


def _messages(view: View, parts: tuple[str, str, str]) -> str:
    query = view.query
    place, at, limit = query.get("place", ""), query.get("at", ""), query.get("limit", "50")
    start: dict[str, object] = {}
    if at:
        if place not in _PLACES:
            raise InvalidArgument(f"place={place}: give {', '.join(_PLACES)}", field="place")
        start = {_PLACES[place]: _time_ms(at) if place == "time" else _plain(at)}
    bytes_max = _ONE_BYTES if limit == "1" else _LIST_BYTES
    shown: dict[str, object] = {"value_bytes_max": bytes_max} if view.payloads else {"values": False}
    return rest_path(f"{_TOPIC}/messages", *parts, **start, limit=limit, **shown)


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
    "/console/topics/{tenant}/{namespace}/{topic}/messages", "Messages", "messages.html", collect, interval_s=None
)
