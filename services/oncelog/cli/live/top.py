"""`oncelog top`: the busiest topics, the subscriptions that are behind, and the producers that are refused, live."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import typer

from oncelog.cli.admin.commands import LiveCall, Report, admin_command
from oncelog.cli.admin.readable import ago
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import ROOT, TOPICS, topic_path
from oncelog.cli.admin.stats import IntervalOption, Pace
from oncelog.cli.admin.waiting import watched
from oncelog.cli.live.backlogs import Backlogs, Uncounted, of_topics
from oncelog.cli.live.columns import lines_of
from oncelog.cli.live.lag import lag_lines, silent_line, uncounted_lines
from oncelog.cli.live.screen import ENTER, LEAVE, frame, height, is_terminal, width
from oncelog.core.errors import OncelogError, PermissionDenied
from oncelog.core.names import parse_namespace
from oncelog.core.topic.listing import ListSort

ROWS_MAX = 100
#: Producers of one topic that are looked at.
PRODUCERS_MAX = 1_000
#: The newest samples: an owner takes one each 10 s.
_SAMPLES_S = 20
_REFUSALS = ("duplicates", "stale", "unverified")
#: Lines of the screen that are no rows: the head, three titles with an empty line, and the last line.
_OTHER_LINES = 11

app = typer.Typer(add_completion=False)


class Seen(NamedTuple):
    """One look. rates: of the whole cluster, messages a second; None: of a namespace, or not allowed. backlogs,
    producers: None: not allowed."""

    rates: dict[str, float] | None
    topics: list[dict[str, object]]
    backlogs: Backlogs | None
    producers: list[dict[str, object]] | None
    silent_owners: list[dict[str, object]]

    def answer(self) -> dict[str, Answer]:
        """As -o json prints it."""
        rates: Answer = None if self.rates is None else dict[str, object](self.rates)
        producers: Answer = None if self.producers is None else list(self.producers)
        behind: Answer = None if self.backlogs is None else self.backlogs.answer()["subscriptions"]
        uncounted = Uncounted() if self.backlogs is None else self.backlogs.uncounted
        return {
            "rates": rates,
            "topics": list(self.topics),
            "subscriptions": behind,
            "producers": producers,
            "silent_owners": list(self.silent_owners),
            **uncounted._asdict(),
        }


@admin_command(app, "top", options=LiveCall)
def show_top(
    api: AdminApi,
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="TENANT/NAMESPACE. By default the whole cluster.")
    ] = None,
    sort: Annotated[ListSort, typer.Option("--sort", help="Order of the topics.")] = ListSort.RATE_IN,
    rows: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, max=ROWS_MAX, help="Rows of each table. By default as many as fit."),
    ] = None,
    interval: IntervalOption = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show it once. This is the default if standard output is not a terminal.")
    ] = False,
) -> Iterator[Report]:
    """Show topics by rate, subscriptions by backlog and producers by refusals, until Ctrl-C.

    Rates are messages a second, over the last 10 s. refused: messages that were not stored since the owner took the
    topic over: duplicates, and those whose sequence ids are stale or cannot be verified. Producers are those of the
    topics with the most refusals, of each the first 1,000. `oncelog lag` shows all subscriptions.

    With -o json each update is one line: rates, topics, subscriptions and producers (each null without the right to see
    them), silent_owners, whose topics are missing, without_owner and waiting, topics that are not counted. The whole
    cluster needs a superuser.
    """
    inside = None if namespace is None else str(parse_namespace(namespace))
    live = is_terminal() and not once
    count = rows or (max(3, (height() - _OTHER_LINES) // 3) if live else 10)
    looks = watched(interval, lambda: look(api, inside, sort, count), once=not live)
    return _frames(looks, live=live)


def _frames(looks: Iterator[Seen], *, live: bool) -> Iterator[Report]:
    paces: dict[tuple[str, str], Pace] = {}
    entered = False
    try:
        for seen in looks:
            now_s = time.time()
            lines = lines_of_look(seen, paces, now_s, width())
            shown = frame(lines) if live else "\n".join(lines)
            yield Report(shown if entered or not live else ENTER + shown, {"at_ms": int(now_s * 1000), **seen.answer()})
            entered = live
    finally:
        if entered:
            sys.stdout.write(LEAVE)
            sys.stdout.flush()


# --- one look ---------------------------------------------------------------------------------------------------------


def look(api: AdminApi, namespace: str | None, sort: ListSort, count: int) -> Seen:
    """Raises OncelogError unless topics can be seen."""
    path = TOPICS if namespace is None else f"{TOPICS}/{namespace}"
    calls: list[tuple[str, Mapping[str, bool | int | str | None]]] = [
        (path, {"sort": sort.value, "limit": count}),
        (path, {"sort": ListSort.REFUSED.value, "limit": count}),
    ]
    if namespace is None:
        calls.append((f"{ROOT}/rates", {"seconds": _SAMPLES_S}))
    busiest, refused, *rates = api.get_each(calls)
    for answer in (busiest, refused):
        if isinstance(answer, OncelogError):
            raise answer
    try:
        backlogs = of_topics(api, namespace, count)
    except PermissionDenied:
        backlogs = None
    silent = {each.get("incarnation"): each for each in _listed(busiest, "silent_owners")}
    silent |= {each.get("incarnation"): each for each in (backlogs.silent_owners if backlogs else ())}
    suspects = [str(row["topic"]) for row in _listed(refused, "topics") if number(row.get("refused"))]
    return Seen(
        _rates(rates[0]) if rates else None,
        _listed(busiest, "topics"),
        backlogs,
        _producers(api, suspects, count),
        list(silent.values()),
    )


def _producers(api: AdminApi, topics: Sequence[str], count: int) -> list[dict[str, object]] | None:
    """Those with the most refusals."""
    answers = api.get_each([(f"{topic_path(topic)}/producers", {"limit": PRODUCERS_MAX}) for topic in topics])
    if answers and all(isinstance(answer, PermissionDenied) for answer in answers):
        return None
    found = [row for answer in answers for row in _listed(answer, "producers") if _refusals(row)]
    found.sort(key=lambda row: (-_refusals(row), str(row.get("topic")), str(row.get("name"))))
    return found[:count]


def _refusals(row: Mapping[str, object]) -> int:
    return sum(number(row.get(name)) for name in _REFUSALS)


def _rates(answer: Answer | OncelogError) -> dict[str, float] | None:
    """Of the newest sample of each owner. None: they cannot be seen."""
    if not isinstance(answer, dict):
        return None
    found = dict.fromkeys(("stored", "delivered", "acknowledged", *_REFUSALS), 0.0)
    for owner in objects(answer.get("owners")):
        for sample in objects(owner.get("samples"))[-1:]:
            for name in found:
                found[name] += number(sample.get(name)) * 1000 / max(1, number(sample.get("interval_ms")))
    return {name: round(rate, 1) for name, rate in found.items()}


def _listed(answer: Answer | OncelogError, name: str) -> list[dict[str, object]]:
    return objects(answer.get(name)) if isinstance(answer, dict) else []


# --- lines ------------------------------------------------------------------------------------------------------------


def lines_of_look(seen: Seen, paces: dict[tuple[str, str], Pace], now_s: float, columns: int | None) -> list[str]:
    """paces: of the looks before, changed here. now_s: since 1970. columns: of the terminal; None: nothing is cut."""
    topics = [
        (str(row.get("topic")), *(_rate(row.get(name)) for name in ("rate_in", "rate_out")), *_figures(row, now_s))
        for row in seen.topics
    ]
    producers = [
        (str(row.get("name")), str(row.get("topic")), *(f"{number(row.get(name)):,}" for name in _REFUSALS))
        for row in seen.producers or ()
    ]
    nobody = "no producer was refused" if seen.producers is not None else "producers need the right admin"
    behind = (
        ["subscriptions need the right admin or consume"]
        if seen.backlogs is None
        else lag_lines(seen.backlogs, paces, now_s, many=True, width=columns)
    )
    return [
        *_head(seen, now_s),
        *map(silent_line, seen.silent_owners),
        *(uncounted_lines(seen.backlogs.uncounted, columns) if seen.backlogs is not None else ()),
        "",
        *lines_of(("topic", "in/s", "out/s", "backlog", "oldest", "refused"), topics, 1, columns),
        "",
        *behind,
        "",
        *(lines_of(("producer", "topic", *_REFUSALS), producers, 2, columns) if producers else [nobody]),
    ]


def _head(seen: Seen, now_s: float) -> list[str]:
    clock = time.strftime("%H:%M:%S", time.localtime(now_s))
    behind = "" if seen.backlogs is None else f"  topics with a backlog: {seen.backlogs.topics:,}"
    if seen.rates is None:
        return [f"{clock}{behind}"]
    rates = {name: f"{rate:,.1f}" for name, rate in seen.rates.items()}
    refused = sum(seen.rates[name] for name in _REFUSALS)
    return [
        f"{clock}  messages/s: in {rates['stored']}, out {rates['delivered']}, acknowledged {rates['acknowledged']}",
        f"refused messages/s: {refused:,.1f}{behind}",
    ]


def _figures(row: Mapping[str, object], now_s: float) -> tuple[str, str, str]:
    oldest = number(row.get("oldest_unacked_ms"))
    backlog, refused = row.get("backlog_messages"), row.get("refused")
    return (
        f"{backlog:,}" if isinstance(backlog, int) else "-",
        ago(oldest, now_s * 1000) if oldest else "-",
        f"{refused:,}" if isinstance(refused, int) else "-",
    )


def _rate(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else "-"
