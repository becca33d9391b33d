"""What `topics stats` and `subscriptions stats` show: the state in words and the four figures that matter first. With
`--watch`, what changes from look to look, a line each."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.readable import size
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import topic_path
from oncelog.cli.admin.waiting import watched
from oncelog.cli.options import finite
from oncelog.core.counted import counted

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.1, max=3_600, callback=finite, help="Seconds between two updates.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Show everything, as -o json always does.")]

_TOPIC_LINE = "{:<8}  {:>15}  {:>9}  {:>9}  {:>12}  {:<14}"
TOPIC_TITLE = _TOPIC_LINE.format("time", "messages", "per s", "producers", "max. backlog", "publishing").rstrip()


def add_stats(app: typer.Typer) -> None:
    """Add `topics stats`."""

    @admin_command(app, "stats", line="Show or follow statistics.")
    def show_stats(
        api: AdminApi,
        topic: TopicArgument,
        everything: AllOption = False,
        internal: Annotated[
            bool,
            typer.Option(
                "--internal",
                help="Show the internal state: producers with sequence ids and generations, ledgers, the snapshot.",
            ),
        ] = False,
        watch: WatchOption = False,
        interval: IntervalOption = 2.0,
    ) -> Answer | Report | Iterator[Report]:
        """Show the state of a topic, its rates, its backlog and its size.

        rate: messages a second, over the last 10 s. backlog: of the subscription that has the largest. oldest unacked:
        when the oldest message was stored that a subscription has not acknowledged. stored: one copy. --all also shows
        deduplication verdicts, producers, takeovers and each subscription.

        With --watch a line each time, with -o json the REST response as one line. messages: stored since the topic
        exists. per s: new ones since the last line. producers: connected ones. max. backlog: of the subscription that
        has the largest.
        """
        if internal and watch:
            raise typer.BadParameter("--internal is shown once: leave out --watch")
        path = f"{topic_path(topic)}/{'internalStats' if internal else 'stats'}"
        if watch:
            return _followed(api, path, interval)
        stats = api.get(path)
        return stats if everything or internal else Report(topic_facts(_object(stats)), stats)


def topic_facts(stats: Mapping[str, object]) -> dict[str, object]:
    """stats: of REST: what the topic's owner says, and no other one.

    The four figures say whether messages come and go (rate), whether consumers keep up (backlog, and its age: a small
    backlog may be old, and a large one of this second), and what the topic costs (bytes stored). The state says in
    words why these may be unknown or stand still.
    """
    backlog, served = number(stats.get("backlog_messages")), "message_count" in stats
    return {
        "topic": stats.get("topic"),
        "state": _topic_state(stats),
        "rate": f"{_rate(stats.get('rate_in'))} in, {_rate(stats.get('rate_out'))} out (messages/s)"
        if served
        else None,
        "backlog": f"{counted(backlog, 'message')} of {stats.get('backlog_subscription')}"
        if backlog
        else stats.get("backlog_messages"),
        "oldest_unacked_ms": stats.get("oldest_unacked_ms"),
        "stored_bytes": stats.get("bytes"),
    }


def _topic_state(stats: Mapping[str, object]) -> str:
    waiting, publishing = _object(stats.get("waiting")), stats.get("publishing")
    if waiting:
        return f"{stats.get('phase')}, waits: {waiting.get('message')}"
    if stats.get("phase") == "unowned":
        return "no topic owner serves it now"
    state = f"{stats.get('phase')} at {stats.get('owner_address')}"
    if publishing in ("held", "refused"):
        state += f"; publishing is {publishing}: the backlog of {stats.get('held_by')} exceeds the quota"
    if unavailable := objects(stats.get("unavailable")):
        state += f"; {counted(len(unavailable), 'range')} of entries could not be read in the last minute"
    return state


def subscription_facts(topic: str, subscription: str, stats: Mapping[str, object]) -> dict[str, object]:
    """topic: or partition. stats: of REST.

    The four figures say how far it is behind (backlog, and its age), how many consumers work on it, and how much of the
    backlog these hold without an answer, so that no other one gets it (held). The state says in words why nothing is
    delivered.
    """
    size_bytes = stats.get("backlog_size")
    behind = counted(number(stats.get("msg_backlog")), "message")
    return {
        "topic": topic,
        "subscription": subscription,
        "state": _subscription_state(stats),
        "backlog": f"{behind}, {size(size_bytes)}" if isinstance(size_bytes, int) else behind,
        "oldest_unacked_ms": stats.get("oldest_unacked_ms"),
        "consumers": stats.get("consumer_count"),
        "held": stats.get("unacked_messages"),
    }


def _subscription_state(stats: Mapping[str, object]) -> str:
    blocked = _object(stats.get("blocked"))
    if blocked:
        holder = blocked.get("holder") or "no consumer"
        return f"blocked: {blocked.get('reason')}; message {blocked.get('lowest_hole')}, which {holder} holds"
    if stats.get("holds_publishing_since_ms"):
        return "its backlog exceeds the quota and holds publishing"
    return "open" if stats.get("consumer_count") else "no consumer"


def _rate(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else "?"


def _followed(api: AdminApi, path: str, interval: float) -> Iterator[Report]:
    pace = Pace()
    title: str | None = TOPIC_TITLE
    for stats in watched(interval, lambda: _object(api.get(path))):
        yield Report(_titled(title, topic_line(stats, pace, time.time())), stats)
        title = None


class Pace:
    """How fast a number changes between two looks."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def of(self, value: int, now_s: float) -> str:
        """Per second since the last call; `-` at the first."""
        last, self._last = self._last, (now_s, value)
        if last is None or now_s <= last[0]:
            return "-"
        return f"{(value - last[1]) / (now_s - last[0]):,.1f}"


def topic_line(stats: Mapping[str, object], pace: Pace, now_s: float) -> str:
    """now_s: since 1970."""
    clock = time.strftime("%H:%M:%S", time.localtime(now_s))
    if "message_count" not in stats:
        return f"{clock}  no topic owner serves it now"
    count = number(stats["message_count"])
    backlogs = [number(each.get("msg_backlog")) for each in _object(stats.get("subscriptions")).values()]
    backlog = f"{max(backlogs):,}" if backlogs else "-"
    producers = number(stats.get("connected_producer_count"))
    return _TOPIC_LINE.format(
        clock, f"{count:,}", pace.of(count, now_s), f"{producers:,}", backlog, str(stats.get("publishing"))
    ).rstrip()


def _object(answer: object) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _titled(title: str | None, *lines: str) -> str:
    return "\n".join([*([title] if title is not None else []), *lines])
