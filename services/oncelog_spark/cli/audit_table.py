"""The report of an audit, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from oncelog.core.counted import counted

Json = Mapping[str, Any]
_STYLES = {"good": "green", "violations": "bold red", "violated": "bold red", "incomplete": "yellow", "none": "dim"}
_SHOWN_MAX = 20


def show_report(report: Json, console: Console) -> None:
    """Print each topic, then the verdict of all."""
    for topic in report["topics"]:
        _show_topic(topic, console)
    count = len(report["topics"])
    verdict = report["verdict"]
    what = "1 topic" if count == 1 else f"{count} topics"
    console.print(f"{what} in {report['seconds']} s: [{_STYLES[verdict]}]{verdict}[/]")


def _show_topic(topic: Json, console: Console) -> None:
    table = Table(title=f"{topic['topic']}: {topic['verdict']}", title_justify="left", title_style="bold")
    for column in ("check", "state", "violations", "compared with"):
        table.add_column(column, justify="right" if column == "violations" else "left", overflow="fold")
    for check in topic["checks"]:
        state = f"[{_STYLES[check['state']]}]{check['state']}[/]"
        table.add_row(check["check"], state, str(check["violations"]), check["compared_with"])
    console.print(table)
    end = topic["end"]
    held = (
        f"{counted(topic['messages'], 'message')} in {counted(topic['entries'], 'entry', 'entries')} "
        f"of {counted(topic['ledgers'], 'ledger')}"
    )
    console.print(
        f"  {held}, {topic['bytes']:,} bytes, up to {end['position']} and message {end['next_index']:,}; "
        f"read in {counted(topic['ranges'], 'range')}",
        markup=False,
    )
    refused = topic["duplicates_refused"]
    reported = ", ".join(f"{name} {count:,}" for name, count in refused["reported_by_owner"].items()) or "none"
    console.print(
        f"  duplicates refused: {refused['in_log']:,} in the log; counted by the topic owner of epoch "
        f"{refused['owner_epoch']}: {reported}",
        markup=False,
    )
    times = ", ".join(f"{one['owner_epoch']}" for one in topic["takeovers"][:_SHOWN_MAX])
    console.print(
        f"  takeovers: {len(topic['takeovers'])}" + (f", owner epochs {times}" if times else ""), markup=False
    )
    _show_list("violations", [_sentence(one) for one in topic["violations"]], topic["violations_count"], console)
    _show_list("not checked", topic["not_checked"], len(topic["not_checked"]), console)
    _show_list("note", topic["notes"], len(topic["notes"]), console)
    console.print()


def _sentence(violation: Json) -> str:
    where = f" at {violation['position']}" if violation["position"] else ""
    return f"{violation['rule']}{where}: {violation['message']}"


def _show_list(title: str, lines: Sequence[str], count: int, console: Console) -> None:
    if not count:
        return
    console.print(f"  {title}" + (f" ({count})" if title == "violations" else "") + ":", markup=False)
    for line in lines[:_SHOWN_MAX]:
        console.print(f"    {line}", markup=False, soft_wrap=True)
    if count > _SHOWN_MAX:
        console.print(f"    … and {count - min(len(lines), _SHOWN_MAX)} more: -o json lists {len(lines)}", markup=False)
