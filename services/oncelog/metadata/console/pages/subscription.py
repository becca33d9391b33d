"""One subscription: what its consumers hold, which messages are not acknowledged, dead letters, and what can be done.

A topic without an owner is not placed by looking at it, and neither is a dead-letter topic: their `/stats` are read
first.
"""

from typing import Any

from oncelog.core.errors import OncelogError
from oncelog.core.names import dead_letter_topic, parse_topic
from oncelog.metadata.console.actions.subscriptions import PATH, rest_redrive, rest_subscription, whole_topic
from oncelog.metadata.console.actions.topics import rest_topic
from oncelog.metadata.console.charts import ack_parts
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.pages.topic import is_served
from oncelog.metadata.console.plots import chosen_range, plots_of
from oncelog.metadata.console.rest_reading import rest_path

BUCKETS = 200


async def collect(view: View) -> dict[str, Any]:
    """The reads that were not made are none."""
    range_name = chosen_range(view.query)
    topic, stats, history = await view.read_all(
        rest_topic(view),
        rest_topic(view, "/stats", subscriptions=False),
        rest_subscription(view, "/history", range=range_name),
    )
    topic.require_place()
    context: dict[str, Any] = {
        "topic": topic, "stats": stats, "shown": None, "acks": None, "strip": [], "letters_topic": None,
        "history": history, "shown_range": range_name,
        "plots": plots_of("subscription", history.value, range_name) if history.known else [],
        "letters": None, "letters_stats": None, "whole": whole_topic(view), "dead_letter_topic": None,
    }  # fmt: skip
    if not is_served(stats):
        return context
    shown, acks = await view.read_all(rest_subscription(view), rest_subscription(view, "/ackState", buckets=BUCKETS))
    context |= {"shown": shown, "acks": acks, "strip": list(ack_parts(acks.value)) if acks.known else []}
    return context | await _letters(view, (acks.value["dead_letter_topic"] or "") if acks.known else "")


async def _letters(view: View, named: str) -> dict[str, Any]:
    """named: the dead-letter topic as the consumers say; empty: they name none."""
    place = view.parts["tenant"], view.parts["namespace"], whole_topic(view)
    try:
        name = dead_letter_topic(parse_topic("/".join(place)), view.parts["subscription"], named)
    except OncelogError:  # no topic has a name of this length
        return {}
    path = rest_path(
        "/admin/v2/persistent/{}/{}/{}/stats", name.tenant, name.namespace, name.local_full, subscriptions=False
    )
    stats = await view.read(path)
    counted = await view.read(rest_redrive(view, dead_letter_topic=named)) if is_served(stats) else None
    return {"letters_topic": str(name), "letters_stats": stats, "letters": counted, "dead_letter_topic": named or None}


PAGE = Page(PATH, "Subscription", "subscription.html", collect, interval_s=2.0)
