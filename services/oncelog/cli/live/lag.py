"""`oncelog lag`: how far subscriptions are behind, of a topic, a namespace or the cluster."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from oncelog.cli.admin.commands import LiveCall, Report, admin_command
from oncelog.cli.admin.readable import ago
from oncelog.cli.admin.rest import AdminApi, number
from oncelog.cli.admin.stats import IntervalOption, Pace, WatchOption
from oncelog.cli.admin.waiting import progress, watched
from oncelog.cli.live.backlogs import Backlogs, Uncounted, of_topic, of_topics
from oncelog.cli.live.columns import cut, lines_of, printable
from oncelog.cli.live.screen import width
from oncelog.core.counted import counted
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import parse_namespace, parse_topic

LIMIT_MAX = 10_000
_TITLE = ("subscription", "backlog", "per s", "oldest", "in use")
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=LIMIT_MAX, help="Subscriptions to show, the largest backlogs.")
]

app = typer.Typer(add_completion=False)


@admin_command(app, "lag", options=LiveCall)
def show_lag(
    api: AdminApi,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="PLACE", help="TOPIC, TENANT/NAMESPACE/TOPIC, or TENANT/NAMESPACE. By default the whole cluster."
        ),
    ] = None,
    subscription: Annotated[
        str | None, typer.Argument(metavar="SUBSCRIPTION", help="Subscription of the topic. Default: all.")
    ] = None,
    limit: LimitOption = 50,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
) -> Iterator[Report]:
    """Show how far subscriptions are behind: the messages that they have not acknowledged, over all partitions.

    \b
      oncelog lag                     # the largest backlogs of the cluster
      oncelog lag public/shop -n 10   # of a namespace
      oncelog lag orders --watch      # all subscriptions of a topic

    per s: how the backlog has changed since the last update. oldest: when the oldest message that is not acknowledged
    was stored; -: not known, for some seconds after a takeover. in use: connected consumers. Subscriptions without a
    backlog are shown for a topic only. Topics without an owner are not counted: a topic gets one when a client uses it,
    or with `oncelog lag TOPIC`. Topics that their owner does not serve yet are not counted either: `oncelog admin
    topics list --state waiting` says why. Those of an owner that does not answer are missing. With -o json each update
    is one line: subscriptions, topics (how many topics and partitions these and others are of), more (whether there are
    more subscriptions), silent_owners, without_owner and waiting (how many topics are not counted, and the first of
    them; null: not known, or a TOPIC is given). The whole cluster needs a superuser, a namespace the right admin or
    consume.
    """
    topic, namespace = _place(place)
    if subscription is not None and topic is None:
        raise InvalidArgument("SUBSCRIPTION needs a TOPIC before it", field="subscription")

    def look() -> Backlogs:
        return of_topics(api, namespace, limit) if topic is None else of_topic(api, topic, subscription)

    return _reports(watched(interval, look, once=not watch), many=topic is None, watch=watch)


def _place(place: str | None) -> tuple[str | None, str | None]:
    """(topic, namespace): one of them, or none. Raises InvalidName."""
    if place is None:
        return None, None
    if place.removeprefix("persistent://").count("/") == 1:
        return None, str(parse_namespace(place))
    return str(parse_topic(place)), None


def _reports(looks: Iterator[Backlogs], *, many: bool, watch: bool) -> Iterator[Report]:
    """many: of several topics."""
    paces: dict[tuple[str, str], Pace] = {}
    told: set[str] = set()
    for seen in looks:
        now_s = time.time()
        lines = lag_lines(seen, paces, now_s, many=many, width=width())
        if seen.more:
            lines.append("there are more: --limit, or -o json")
        if many:
            lines += uncounted_lines(seen.uncounted, width())
        clock = [time.strftime("%H:%M:%S", time.localtime(now_s))] if watch else []
        yield Report("\n".join([*clock, *lines]), {"at_ms": int(now_s * 1000), **seen.answer()})
        for owner in map(silent_line, seen.silent_owners):
            if owner not in told:
                progress(owner)
        told = set(map(silent_line, seen.silent_owners))


def silent_line(owner: Mapping[str, object]) -> str:
    return f"topic owner {owner.get('address')} does not answer, and its topics are missing: {owner.get('reason')}"


def uncounted_lines(uncounted: Uncounted, columns: int | None) -> list[str]:
    """One line if topics have no owner, or if that is not known, and one if topics are not served yet. columns: of the
    terminal; None: nothing is cut."""
    unowned, waiting = (
        _named(topics, *words)
        for topics, words in (
            (uncounted.without_owner, ("topic has no owner and is", "topics have no owner and are")),
            (uncounted.waiting, ("topic is not served yet and is", "topics are not served yet and are")),
        )
    )
    if uncounted.without_owner is None:
        unowned = ["whether topics have no owner, and are not counted, is not known yet"]
    return [line if columns is None else cut(line, columns) for line in (*unowned, *waiting)]


def _named(topics: Mapping[str, object] | None, one: str, several: str) -> list[str]:
    """topics: how many, and the first names, as REST has them."""
    count, first = (topics or {}).get("topics"), (topics or {}).get("first")
    if not number(count):
        return []
    names = [printable(str(name)) for name in first] if isinstance(first, list) else []
    more = ", …" if number(count) > len(names) else ""
    return [f"{counted(number(count), one, several)} not counted: {', '.join(names)}{more}"]


def lag_lines(
    seen: Backlogs, paces: dict[tuple[str, str], Pace], now_s: float, *, many: bool, width: int | None
) -> list[str]:
    """A table. paces: of the looks before, changed here. now_s: since 1970. many: with a column for the topic."""
    if not seen.rows:
        return ["no subscription has a backlog" if many else "the topic has no subscription"]
    rows = []
    for row in seen.rows:
        figures = [
            f"{row.msg_backlog:,}",
            paces.setdefault((row.topic, row.subscription), Pace()).of(row.msg_backlog, now_s),
            ago(row.oldest_unacked_ms, now_s * 1000) if row.oldest_unacked_ms else "-",
            str(row.consumer_count),
        ]
        rows.append([*([row.topic] if many else []), row.subscription, *figures])
    title = ["topic", *_TITLE] if many else list(_TITLE)
    return lines_of(title, rows, len(title) - len(_TITLE) + 1, width)
