"""`topics stats --watch`: what changes from look to look, a line each."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer, number
from oncelog.cli.admin.rest_paths import topic_path
from oncelog.cli.admin.waiting import watched
from oncelog.cli.options import finite

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
IntervalOption = Annotated[
    float, typer.Option("--interval", min=0.1, max=3_600, callback=finite, help="Seconds between two looks.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Look again until Ctrl-C.")]

_TOPIC_LINE = "{:<8}  {:>15}  {:>9}  {:>9}  {:>12}  {:<14}"
TOPIC_TITLE = _TOPIC_LINE.format("time", "messages", "per s", "producers", "max. backlog", "publishing").rstrip()


def add_stats(app: typer.Typer) -> None:
    """Add `topics stats`."""

    @admin_command(app, "stats", line="Show or follow statistics.")
    def show_stats(
        api: AdminApi,
        topic: TopicArgument,
        internal: Annotated[
            bool,
            typer.Option(
                "--internal",
                help="Show the internal state: producers with sequence ids and generations, ledgers, the snapshot.",
            ),
        ] = False,
        watch: WatchOption = False,
        interval: IntervalOption = 2.0,
    ) -> Answer | Iterator[Report]:
        """Show statistics of a topic: messages, deduplication verdicts, producers, takeovers.

        With --watch a line each time, with -o json the REST response as one line. messages: stored since the topic
        exists. per s: new ones since the last line. producers: connected ones. max. backlog: of the subscription that
        has the largest.
        """
        if internal and watch:
            raise typer.BadParameter("--internal is shown once: leave out --watch")
        path = f"{topic_path(topic)}/{'internalStats' if internal else 'stats'}"
        return _followed(api, path, interval) if watch else api.get(path)


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
