"""Formats REST responses as tables: values, lists and nested objects.

Rules
- Lines break only between words, and an id, an address or a number is one word. If a table does not fit the width, each
  row is shown as a block of lines.
- A table has the most useful columns. `wide` has all columns and full values, whatever the width.
"""

import json
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from oncelog.cli.admin.readable import ago, duration, is_size, is_time, label, moment, short_address, short_names, size
from oncelog.cli.admin.rest import Answer

if TYPE_CHECKING:
    from rich.console import Console

_GAP = "  "
TableRow = Mapping[str, object]


class TableColumn(NamedTuple):
    """text: formats the cell from the row; None: the value of the field."""

    title: str
    field: str
    text: Callable[[TableRow], str] | None = None


def _storage_state(row: TableRow) -> str:
    state = "retired" if row.get("retired") else "live" if row.get("live") else "away"
    if row.get("read_only_set"):
        return f"{state}, read-only (set)"
    return f"{state}, read-only" if row.get("read_only") and row.get("live") else state


def _copies(row: TableRow) -> str:
    return f"{row.get('copies')} of {row.get('write_quorum')}"


def _connected(row: TableRow) -> str:
    return "yes" if row.get("connected") else "no"


def _duration(field: str) -> Callable[[TableRow], str]:
    def text(row: TableRow) -> str:
        value = row.get(field)
        return duration(value) if isinstance(value, int | float) else "-"

    return text


def _why(row: TableRow) -> str:
    """Why the topic is stuck; a backlog has a column of its own."""
    causes = [str(row["waiting_for"])] if row.get("waiting_for") else []
    if row.get("held_since_ms"):
        causes.append(f"held by {row.get('held_by') or 'a backlog'}")
    if row.get("blocked_subscriptions"):
        causes.append(f"{row['blocked_subscriptions']} blocked")
    return ", ".join(causes) or "-"


#: ({fields that identify a kind of list}, its columns); `wide` shows all fields.
_KNOWN: tuple[tuple[frozenset[str], tuple[TableColumn, ...]], ...] = (
    (
        frozenset({"incarnation", "retired"}),
        (
            TableColumn("node", "incarnation"),
            TableColumn("address", "address"),
            TableColumn("state", "live", _storage_state),
            TableColumn("free", "free_bytes"),
        ),
    ),
    (
        frozenset({"incarnation", "debt", "damaged_ledgers"}),
        (
            TableColumn("node", "incarnation"),
            TableColumn("address", "address"),
            TableColumn("state", "state"),
            TableColumn("ledgers", "ledgers"),
            TableColumn("debt", "debt"),
            TableColumn("damaged", "damaged_ledgers"),
            TableColumn("verified", "verified_ms"),
        ),
    ),
    (
        frozenset({"ledger_id", "health", "copies"}),
        (
            TableColumn("ledger", "ledger_id"),
            TableColumn("topic", "topic"),
            TableColumn("state", "state"),
            TableColumn("health", "health"),
            TableColumn("copies", "copies", _copies),
            TableColumn("entries", "entries"),
        ),
    ),
    (
        frozenset({"incarnation", "connected", "state"}),
        (
            TableColumn("owner", "incarnation"),
            TableColumn("address", "address"),
            TableColumn("state", "state"),
            TableColumn("since", "since_ms"),
            TableColumn("connected", "connected", _connected),
        ),
    ),
    (
        frozenset({"began_ms", "replayed_entries"}),
        (
            TableColumn("owner_epoch", "owner_epoch"),
            TableColumn("began", "began_ms"),
            TableColumn("ms", "ms"),
            TableColumn("replayed_entries", "replayed_entries"),
        ),
    ),
    (
        frozenset({"topic", "states", "backlog_messages"}),
        (
            TableColumn("topic", "topic"),
            TableColumn("why", "waiting_for", _why),
            TableColumn("since", "since_ms"),
            TableColumn("backlog", "backlog_messages"),
            TableColumn("oldest", "oldest_unacked_ms"),
        ),
    ),
    (
        frozenset({"generation", "fenced_generation"}),
        (
            TableColumn("gen", "generation"),
            TableColumn("at", "at_ms"),
            TableColumn("role", "role"),
            TableColumn("from", "from"),
            TableColumn("fenced", "fenced_generation"),
        ),
    ),
    (
        frozenset({"partition", "producer_id", "persisted"}),
        (
            TableColumn("part", "partition"),
            TableColumn("name", "name"),
            TableColumn("gen", "generation"),
            TableColumn("persisted", "persisted"),
            TableColumn("idle", "idle_ms", _duration("idle_ms")),
            TableColumn("from", "connected_from"),
        ),
    ),
    (
        frozenset({"producer_id", "persisted"}),
        (
            TableColumn("name", "name"),
            TableColumn("gen", "generation"),
            TableColumn("persisted", "persisted"),
            TableColumn("idle", "idle_ms", _duration("idle_ms")),
            TableColumn("expires", "expires_ms", _duration("expires_ms")),
            TableColumn("from", "connected_from"),
        ),
    ),
)


def show(answer: Answer, console: "Console", *, wide: bool = False) -> None:
    """Print a response; prints nothing for None."""
    for line in lines_of(answer, width=console.width, wide=wide, now_ms=time.time() * 1000):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lines_of(answer: Answer, *, width: int, wide: bool, now_ms: float) -> list[str]:
    """The lines of a response, of at most `width` characters if the words allow it, unless `wide`."""
    if answer is None:
        return []
    layout = _Layout(width, wide, now_ms, short_names(answer))
    if isinstance(answer, Mapping):
        return layout.facts("", answer)
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return layout.items("", answer)
    return [layout.value("", answer)]


@dataclass(frozen=True, slots=True)
class _Layout:
    width: int
    wide: bool
    now_ms: float
    #: {id: its short id}
    names: Mapping[str, str]

    def facts(self, title: str, facts: TableRow) -> list[str]:
        """One line per value, or several for a long text; then the lists of objects."""
        rows: list[tuple[str, str]] = []
        later: list[tuple[str, Sequence[object]]] = []
        for name, value in _flat("", facts):
            if isinstance(value, list) and value and isinstance(value[0], Mapping):
                later.append((name, value))
            else:
                rows.append((label(name, value), self.value(name, value)))
        lines = [*([title] if title else []), *self._pairs(rows)]
        for name, items in later:
            lines += ["", *self.items(name, items)]
        return lines

    def items(self, title: str, items: Sequence[object]) -> list[str]:
        """A table of objects, or one line per value."""
        if not items or not isinstance(items[0], Mapping):
            return [self.value(title, item) for item in items]
        rows = [dict(_flat("", item)) for item in items if isinstance(item, Mapping)]
        columns = self._columns(rows)
        table = [[column.title for column in columns], *([self._cell(one, row) for one in columns] for row in rows)]
        widths = [max(len(row[number]) for row in table) for number in range(len(columns))]
        heading = [f"{title}:"] if title else []
        if not self.wide and sum(widths) + len(_GAP) * (len(widths) - 1) > self.width:
            return heading + self._blocks(table)
        right = [
            all(isinstance(row.get(column.field), int | float | None) for row in rows) and column.text is None
            for column in columns
        ]
        return heading + [
            _GAP.join(
                cell.rjust(size) if aligned else cell.ljust(size)
                for cell, size, aligned in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in table
        ]

    def value(self, name: str, value: object) -> str:
        """A value on its own line."""
        if isinstance(value, list):
            return ", ".join(self._short(item) for item in value) or "-"
        if is_time(name, value) and isinstance(value, int | float):
            return f"{moment(value)}, {ago(value, self.now_ms)}"
        if is_size(name, value) and isinstance(value, int):
            return f"{value} B" if self.wide else size(value)
        return _text(value)

    def _columns(self, rows: Sequence[TableRow]) -> Sequence[TableColumn]:
        fields = list(dict.fromkeys(name for row in rows for name in row))
        for key, known in _KNOWN:
            if not self.wide and key <= set(fields):
                return known
        samples = {name: next((row[name] for row in rows if row.get(name) is not None), None) for name in fields}
        return [TableColumn(label(name, samples[name]), name) for name in fields]

    def _cell(self, column: TableColumn, row: TableRow) -> str:
        if column.text is not None:
            return column.text(row)
        value = row.get(column.field)
        if is_time(column.field, value) and isinstance(value, int | float):
            return moment(value) if self.wide else ago(value, self.now_ms)
        if column.field.endswith("_ms") and value == 0 and column.title != column.field:
            return "-"
        if is_size(column.field, value) and isinstance(value, int):
            return f"{value} B" if self.wide else size(value)
        if isinstance(value, list):
            return ", ".join(self._short(item) for item in value) or "-"
        return self._short(value)

    def _short(self, value: object) -> str:
        if self.wide or not isinstance(value, str):
            return _text(value)
        return self.names.get(value) or short_address(value)

    def _blocks(self, table: Sequence[Sequence[str]]) -> list[str]:
        """Each row as a block of lines, for a table that is too wide."""
        lines: list[str] = []
        for row in table[1:]:
            lines += [*([""] if lines else []), *self._pairs(list(zip(table[0], row, strict=True)))]
        return lines

    def _pairs(self, rows: Sequence[tuple[str, str]]) -> list[str]:
        """Names and values in two columns; long values continue on the next line, indented."""
        indent = max((len(name) for name, _ in rows), default=0) + len(_GAP)
        room = max(self.width - indent, 20)
        lines: list[str] = []
        for name, value in rows:
            pieces = [value]
            if not self.wide and len(value) > room:
                pieces = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [value]
            lines += [f"{name.ljust(indent)}{pieces[0]}", *(" " * indent + piece for piece in pieces[1:])]
        return lines


def _flat(prefix: str, facts: TableRow) -> list[tuple[str, object]]:
    """Nested objects flattened to dotted names."""
    rows: list[tuple[str, object]] = []
    for name, value in facts.items():
        rows += _flat(f"{prefix}{name}.", value) if isinstance(value, Mapping) else [(prefix + name, value)]
    return rows


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


def table_console(width: int) -> "Console":
    """For a table on standard output. width: used where standard output is a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)
