"""The output of a benchmark: a table for people, one JSON object for programs."""

import os
import platform
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from oncelog_lab.bench.figures import BenchRow


def print_table(rows: Sequence[BenchRow], console: Console) -> None:
    """Print the rows, and how many of them reach their target."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("what")
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("reach", no_wrap=True)
    table.add_column("ok", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            row.what,
            f"{shown(row.figure)} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.target is None else row.target.shown(row.unit),
            {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[row.ok],
            row.note,
        )
    console.print(table)
    judged = [row.ok for row in rows if row.ok is not None]
    if judged:
        console.print(f"{sum(judged)} of {len(judged)} rows reach their target", highlight=False)


def to_json(rows: Sequence[BenchRow]) -> dict[str, object]:
    """{"machine": …, "rows": […]}, each row as `BenchRow.to_json`."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    return {"machine": machine, "rows": [row.to_json() for row in rows]}


def shown(figure: float) -> str:
    """For people."""
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"
