"""The rows of the proof, for people and for programs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from oncelog_doors.proof.histories import History, Proof

#: Of a table in a file, whose reader has no terminal.
WIDTH = 118
_SHOWN = {None: "[yellow]NOT RUN[/]", True: "[green]yes[/]", False: "[red]NO[/]"}


@dataclass(frozen=True, slots=True)
class Row:
    """One history with one client. left, right: what came of it, or why nothing did. missing: why it was not run."""

    history: History
    client: str
    left: str = ""
    right: str = ""
    missing: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the left side failed in the way that is stated, and the right side passed. None: it was not run."""
        if self.missing:
            return None
        return (self.left, self.right) == (self.history.left, self.history.right)

    def to_json(self, rule: str) -> dict[str, object]:
        """rule: the key of the left side."""
        history = self.history
        return {
            "defect": history.defect, "history": history.title, "client": self.client, "passed": self.passed,
            rule: self.left, "door": self.right, "not_run": self.missing,
            "expected": {rule: history.left, "door": history.right},
        }  # fmt: skip


def proven(rows: Sequence[Row]) -> bool:
    """Whether all rows that were run have passed, and there is one."""
    return any(row.passed for row in rows) and not any(row.passed is False for row in rows)


def summary(rows: Sequence[Row]) -> str:
    """One line; it names the clients that were not run."""
    run = [row for row in rows if row.passed is not None]
    missing = {row.client: row.missing for row in rows if row.missing}
    words = [f"{sum(row.passed is True for row in run)} of {len(run)} rows passed"]
    if missing:
        words.append(f"{len(rows) - len(run)} rows were NOT RUN, and prove nothing")
        words += [f"{client}: {why}" for client, why in missing.items()]
    return "; ".join(words)


def to_json(proof: Proof, rows: Sequence[Row]) -> dict[str, object]:
    """{"proven", "summary", "rows": [...], "left_out": {defects: why}}"""
    shown = [row.to_json(f"{proof.protocol}s_rule") for row in rows]
    return {"proven": proven(rows), "summary": summary(rows), "rows": shown, "left_out": dict(proof.left_out)}


def print_table(proof: Proof, rows: Sequence[Row], console: Console) -> None:
    """Clients with the same outcomes share a row. Below a row that has not passed is what was expected."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("defect", "history", "clients", f"under {proof.system}'s rule", "behind the door", "passed"):
        table.add_column(column)
    clients = defaultdict[Row, list[str]](list)
    for row in rows:
        clients[replace(row, client="")].append(row.client)
    for row, names in clients.items():
        history = row.history
        sides = (f"not run: {row.missing}", "") if row.missing else (row.left, row.right)
        table.add_row(history.defect, history.title, " ".join(names), *sides, _SHOWN[row.passed])
        if row.passed is False:
            table.add_row("", "", "", f"[red]expected:[/] {history.left}", f"[red]expected:[/] {history.right}", "")
    console.print(table)
    for defects, why in proof.left_out.items():
        console.print(f"left out: {defects}: {why}", highlight=False, soft_wrap=True)
    console.print(summary(rows), highlight=False, soft_wrap=True, style="bold")
