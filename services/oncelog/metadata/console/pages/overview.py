"""The overview: one sentence about what is safe and what is stuck, and below it what the sentence is made of.

Most of it is about the whole cluster, so only superusers may see it. Other roles see the namespaces in which they have
a right.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.pages.storage import unsound_ledgers
from oncelog.metadata.console.picture import Tier, picture
from oncelog.metadata.console.plots import chosen_range, plots_of
from oncelog.metadata.console.rest_reading import Block, rest_path

_RATES_S = 600
#: Topics whose proofs are read, in the order of REST, and the newest of them that are shown.
_PROOFS_READ, _PROOFS_SHOWN = 100, 5
#: Topics, subscriptions and ledgers of one list.
_ROWS, _LEDGERS = 5, 20
#: The reads that the picture of the cluster is made of.
PICTURED = ("owners", "rates", "nodes")
#: {name of the read: state of topics}, the worst first.
STUCK = {"waiting": "waiting", "held": "held", "blocked": "blocked", "growing": "growing", "letters": "dead_letters"}
#: States of ledgers with entries that cannot be read now, the worst first.
UNSOUND = ("lost", "unavailable", "frozen")
#: Owners sample at different times, so their samples of the same 10 s are added up.
_INTERVAL_MS = 10_000
_COUNTS = ("stored", "delivered", "acknowledged", "duplicates", "stale", "unverified")
_TIMES = ("publish_p50_ms", "publish_p99_ms")


@dataclass(frozen=True, slots=True)
class ClusterRates:
    """Of all owners that answered. rates: {name: a second, for each 10 s}; a time is that of the slowest owner."""

    rates: Mapping[str, list[float | None]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    since_ms: int | None = None


def cluster_rates(answer: Mapping[str, Any]) -> ClusterRates:
    """From an answer of /admin/v2/rates: the last 60 intervals, unknown before the first sample. The newest interval is
    left out: not every owner has sampled in it."""
    counts: dict[str, dict[int, float]] = {name: defaultdict(float) for name in _COUNTS}
    times: dict[str, dict[int, float]] = {name: {} for name in _TIMES}
    totals = dict.fromkeys(_COUNTS, 0)
    samples = [sample for owner in answer["owners"] for sample in owner["samples"]]
    for sample in samples:
        place = sample["at_ms"] // _INTERVAL_MS
        for name in _COUNTS:
            totals[name] += sample[name]
            counts[name][place] += sample[name] * 1_000 / max(sample["interval_ms"], 1)
        for name in _TIMES:
            if sample[name] is not None:
                times[name][place] = max(times[name].get(place, 0.0), sample[name])
    if not samples:
        return ClusterRates(totals=totals)
    last = max(sample["at_ms"] // _INTERVAL_MS for sample in samples)
    places = range(last - _RATES_S * 1_000 // _INTERVAL_MS, last)
    rates: dict[str, list[float | None]] = {
        name: [given.get(place) for place in places] for name, given in (*counts.items(), *times.items())
    }
    return ClusterRates(rates, totals, min(sample["at_ms"] - sample["interval_ms"] for sample in samples))


def _copies(repair: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Of entries of closed ledgers: how many there are, and the lowest and highest number of copies. None: no entry."""
    found = {int(copies): entries for copies, entries in repair["entries_by_copies"].items() if entries}
    return {"entries": sum(found.values()), "least": min(found), "most": max(found)} if found else None


def newest_proofs(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of an answer of /admin/v2/proofs, which is ordered by topic id."""

    def changed_ms(row: Mapping[str, Any]) -> int:
        times: list[int] = [one["ended_ms"] or one["asked_ms"] for one in (row["going"], row["verdict"]) if one]
        return max(times)

    return sorted(page["proofs"], key=changed_ms, reverse=True)[:_PROOFS_SHOWN]


async def collect(view: View) -> dict[str, Any]:
    calls, range_name = {"health": "/admin/v2/brokers/health"}, chosen_range(view.query)
    if view.caller.superuser:
        calls |= _cluster_calls() | {"history": rest_path("/admin/v2/history", range=range_name)}
    reads: dict[str, Block] = dict(zip(calls, await view.read_all(*calls.values()), strict=True))
    return {
        "copies": _copies(reads["repair"].value) if _known(reads, "repair") else None,
        "newest": newest_proofs(reads["proofs"].value) if _known(reads, "proofs") else [],
        "unsound": await _unsound(view, reads["health"]),
        **reads,
        "picture": _picture(reads),
        "plots": plots_of("cluster", reads["history"].value, range_name) if _known(reads, "history") else [],
        "shown_range": range_name,
        "sums": cluster_rates(reads["rates"].value) if _known(reads, "rates") else ClusterRates(),
    }


def _picture(reads: Mapping[str, Block]) -> list[Tier]:
    """None of it is shown before all of it is known."""
    if not all(_known(reads, name) for name in PICTURED):
        return []
    owners, rates, nodes = (reads[name].value for name in PICTURED)
    return picture(owners, rates, nodes)


def _known(reads: Mapping[str, Block], name: str) -> bool:
    return name in reads and reads[name].known


def _cluster_calls() -> dict[str, str]:
    return {
        "repair": "/admin/v2/storage/repair",
        "owners": "/admin/v2/brokers",
        "nodes": "/admin/v2/storage-nodes",
        "dependencies": "/admin/v2/dependencies",
        "topics": rest_path("/admin/v2/topics", limit=1),
        "rates": rest_path("/admin/v2/rates", seconds=_RATES_S),
        "events": rest_path("/admin/v2/events", limit=8),
        "proofs": rest_path("/admin/v2/proofs", limit=_PROOFS_READ),
        "lags": rest_path("/admin/v2/subscriptions", state="no_consumer", sort="age", limit=_ROWS),
        **{name: rest_path("/admin/v2/topics", state=state, limit=_ROWS) for name, state in STUCK.items()},
    }


async def _unsound(view: View, health: Block) -> dict[str, Block]:
    """{state: the ledgers with entries that cannot be read now}, the worst first; only of states that a ledger has."""
    if not (view.caller.superuser and health.known):
        return {}
    states = [state for state in UNSOUND if health.value.get(f"{state}_ledgers")]
    targets = [unsound_ledgers(state, _LEDGERS) for state in states]
    return dict(zip(states, await view.read_all(*targets), strict=True))


#: Its rates are samples of ten seconds, and at 5,000 topics its lists cost a sixth of a core if asked for each second.
PAGE = Page("/console/", "Overview", "overview.html", collect, interval_s=5.0, key="o")
