"""One topic: where its log is, who writes, what takeovers took, who consumes, and which policies apply. And one of its
producers, with its generations.

A topic that no owner serves stays without one: calls that place a topic are made only after `/stats` has named its
owner, and not while the owner does not answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.actions.topics import rest_topic
from oncelog.metadata.console.arranging import READ_MAX, Order, Orders, arranged, by_field
from oncelog.metadata.console.charts import ack_parts
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.plots import chosen_range, plots_of
from oncelog.metadata.console.rest_reading import Block, rest_path

#: Rows of a list; and how many subscriptions show their ack state, each of which is a call to the owner.
ROWS, STRIPS = 50, 5
LEDGERS, BUCKETS = 200, 100
#: Ledgers in the table, of those in the strip; without an order the newest few, and each that lacks copies.
LEDGER_ROWS, NEWEST = 60, 5
#: A topic with more of them shows only their numbers.
PARTITIONS = 100
_PATH = "/console/topics/{tenant}/{namespace}/{topic}"
_PHASES = ("acquire", "recover", "load_snapshot", "replay", "open")
#: What is not here is unknown.
_HEALTH = {"ok": "good", "unverified": "good", "under-replicated": "warn"} | dict.fromkeys(
    ("unavailable", "lost", "frozen"), "bad"
)

_PRODUCERS: Orders = {
    "name": Order(lambda row: row["name"], ascending=True),
    "in_flight": Order(lambda row: row["accepted"] - row["persisted"]),
    **by_field("generation", "duplicates", "stale", "unverified", "last_activity_ms"),
}
_LEDGERS: Orders = {
    "copies": Order(lambda row: row["copies"], ascending=True),
    **by_field("ledger_id", "entries", "bytes"),
}


async def collect(view: View) -> dict[str, Any]:
    """Reads that were not made are none."""
    after, prefix = view.query.get("subscriptions_after"), view.query.get("producer", "")
    sort = view.query.get("subscriptions_sort") or "backlog"
    range_name = chosen_range(view.query)
    producers_sort, ledgers_sort = view.query.get("producers_sort"), view.query.get("ledgers_sort")
    about, stats, policies, ledgers, subscriptions, proof, history = await view.read_all(
        rest_topic(view),
        rest_topic(view, "/stats", subscriptions=False),
        rest_topic(view, "/policies"),
        rest_topic(view, "/ledgers", limit=LEDGERS),
        rest_topic(view, "/subscriptionStats", limit=ROWS, after=after, sort=sort),
        rest_topic(view, "/proof"),
        rest_topic(view, "/history", range=range_name),
    )
    about.require_place()
    producers = deduplication = None
    acks: list[Block] = []
    names: list[str] = []
    if is_served(stats):
        rows = subscriptions.value["subscriptions"] if subscriptions.known else []
        names = [row["name"] for row in rows if row["msg_backlog"]][:STRIPS]
        producers, deduplication, *acks = await view.read_all(
            rest_topic(
                view,
                "/producers",
                limit=READ_MAX if producers_sort in _PRODUCERS else ROWS,
                after=view.query.get("producers_after"),
                name_prefix=prefix,
                connected=view.query.get("producers_connected"),
            ),
            rest_topic(view, "/deduplication"),
            *(rest_topic(view, "/subscription/{}/ackState", name, buckets=BUCKETS) for name in names),
        )
    partitions = about.value["partitions"] if about.known else 0
    listed: Block | None = None
    if 0 < partitions <= PARTITIONS:
        namespace = view.parts["tenant"], view.parts["namespace"]
        name = f"{view.topic}-partition-"
        listed = await view.read(rest_path("/admin/v2/topics/{}/{}", *namespace, name=name, sort="name", limit=1_000))
    strips = {name: list(ack_parts(read.value)) for name, read in zip(names, acks, strict=True) if read.known}
    return {
        "about": about,
        "partitions": partitions,
        "listed": listed,
        "parts": {row["topic"]: row for row in listed.value["topics"]} if listed and listed.known else {},
        "stats": stats,
        "history": history,
        "plots": plots_of("topic", history.value, range_name) if history.known else [],
        "shown_range": range_name,
        "policies": policies,
        "ledgers": ledgers,
        "log": list(_log_parts(ledgers.value, stats.value)) if ledgers.known else [],
        "subscriptions": subscriptions,
        "subscriptions_sort": sort,
        "proof": proof,
        "strips": strips,
        "ack_reads": acks,
        "producers": producers,
        "producer_rows": arranged(producers.value["producers"], _PRODUCERS, producers_sort)[:ROWS]
        if producers and producers.known
        else [],
        "producers_sort": producers_sort,
        "ledger_rows": _ledger_rows(ledgers.value["ledgers"], ledgers_sort) if ledgers.known else [],
        "ledgers_sort": ledgers_sort,
        "deduplication": deduplication,
        "takeovers": [_durations(each) for each in (stats.value or {}).get("takeovers", ())][::-1],
        "phases": _PHASES,
        "health": lambda word: _HEALTH.get(word, "unknown"),
    }


async def collect_producer(view: View) -> dict[str, Any]:
    name = view.query.get("name", "")
    if not name:
        raise InvalidArgument("name is empty: give the name of a producer", field="name")
    stats = await view.read(rest_topic(view, "/stats", subscriptions=False))
    stats.require_place()
    producer = await view.read(rest_topic(view, "/producers/{}", name)) if is_served(stats) else None
    return {"stats": stats, "producer": producer, "name": name}


def is_served(stats: Block) -> bool:
    return stats.known and stats.problem is None and stats.value["phase"] == "serving"


def _ledger_rows(ledgers: Sequence[Mapping[str, Any]], sort: str | None) -> list[Mapping[str, Any]]:
    if sort in _LEDGERS:
        return arranged(ledgers, _LEDGERS, sort)[:LEDGER_ROWS]
    newest = {ledger["ledger_id"] for ledger in ledgers[-NEWEST:]}
    sound = {health for health, kind in _HEALTH.items() if kind == "good"}
    return [each for each in ledgers if each["ledger_id"] in newest or each["health"] not in sound][:LEDGER_ROWS]


def _log_parts(ledgers: Mapping[str, Any], stats: Mapping[str, Any] | None) -> Iterator[tuple[float, str, str]]:
    """The log by messages: what is older than the list, then each ledger with the state of its copies."""
    older = ledgers["older"]
    if older is not None:
        text = f"{older['ledgers']} older ledgers: messages {older['first_index']} to {older['next_index'] - 1}"
        yield older["next_index"] - older["first_index"], "off", text
    end = (stats or {}).get("message_count")
    for ledger in ledgers["ledgers"]:
        first, next_index = ledger["first_index"], ledger["next_index"]
        if next_index is None:
            next_index = end
        count = max(0, next_index - first) if next_index is not None else 0
        messages = f"messages {first} to {first + count - 1}" if count else "no messages"
        copies = "" if ledger["copies"] is None else f", {ledger['copies']} of {ledger['write_quorum']} copies"
        text = f"ledger {ledger['ledger_id']}: {messages}, {ledger['state']}, {ledger['health']}{copies}"
        yield count, _HEALTH.get(ledger["health"], "unknown"), text


def _durations(takeover: dict[str, Any]) -> dict[str, Any]:
    """With the time of each phase instead of its end."""
    before, took = 0.0, dict[str, float]()
    for phase in _PHASES:
        end = takeover["phases_ms"].get(phase)
        if end is not None:
            took[phase], before = max(0.0, end - before), max(end, before)
    parts = [(ms, "off", f"{phase}: {ms:.1f} ms") for phase, ms in took.items()]
    return {**takeover, "took": took, "parts": parts}


PAGE = Page(_PATH, "Topic", "topic.html", collect, interval_s=2.0)
#: By ?name=, because a browser resolves a name such as `..` in a path.
PRODUCER = Page(_PATH + "/producer", "Producer", "producer.html", collect_producer, interval_s=2.0)
