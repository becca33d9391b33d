"""Answers of the REST interface for people: values, lists and nested objects as tables."""

import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from oncelog.cli.admin.rest import Answer


def show(answer: Answer, console: Console) -> None:
    """Print any answer; nothing for none."""
    if isinstance(answer, Mapping):
        _show_object("", answer, console)
    elif isinstance(answer, Sequence) and not isinstance(answer, str):
        _show_list("", answer, console)
    elif answer is not None:
        console.print(_text(answer), markup=False)


def _show_object(title: str, facts: Mapping[str, object], console: Console) -> None:
    table = Table(show_header=False, box=None, title=title or None, title_justify="left")
    later: list[tuple[str, Sequence[object]]] = []
    for name, value in _flat("", facts):
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            later.append((name, value))
        else:
            table.add_row(name, _text(value))
    console.print(table)
    for name, items in later:
        _show_list(name, items, console)


def _flat(prefix: str, facts: Mapping[str, object]) -> list[tuple[str, object]]:
    """Nested objects as dotted names."""
    rows: list[tuple[str, object]] = []
    for name, value in facts.items():
        rows += _flat(f"{prefix}{name}.", value) if isinstance(value, Mapping) else [(prefix + name, value)]
    return rows


def _show_list(title: str, items: Sequence[object], console: Console) -> None:
    if not items or not isinstance(items[0], Mapping):
        for item in items:
            console.print(_text(item), markup=False)
        return
    rows = [dict(_flat("", item)) for item in items if isinstance(item, Mapping)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
