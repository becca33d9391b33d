"""`python -m tests.tidy.measure`: how large the product and its tests are, by room; the files of the walks; the seconds
of the suite's parts. It limits nothing: it shows what a change made larger.

    python -m tests.tidy.measure --against main     what differs from a revision of git
    python -m tests.tidy.measure --output json      {table: {row: {column: number}}}; of a difference [before, after]
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TypeAlias

from tests.tidy.measure.tables import SECONDS, Table, seconds_table, tables
from tests.tidy.measure.trees import tree_of, working_tree
from tests.tidy.source import ROOT

#: Of one table; two of them stand side by side.
WIDTH = 46

#: {table: {row: {column: [before, after]}}}
Differences: TypeAlias = dict[str, dict[str, dict[str, list[int]]]]


def lines_of(table: Table) -> list[str]:
    """The table as text. A row is indented by the folders that it lies in."""
    widths = [max(len(column), 7) for column in table.columns]
    room = WIDTH - sum(widths) - 2 * len(widths)

    def line(name: str, cells: Sequence[str]) -> str:
        return f"{name:<{room}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    rows = [line(_indented(name), [f"{number:,}" for number in numbers]) for name, numbers in table.rows.items()]
    return [line(table.title, table.columns), *rows]


def _indented(name: str) -> str:
    *outer, last = name.split("/")
    return "  " * len(outer) + last


def side_by_side(left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    for one, other in zip_longest(left, right, fillvalue=""):
        yield f"{one:<{WIDTH}}    {other}".rstrip()


def report(measured: Sequence[Table]) -> Iterator[str]:
    """Yield the lines of what is printed without options. measured: those of the files, then the seconds."""
    product, tests, languages, walks, seconds = measured
    yield from side_by_side(lines_of(product), lines_of(tests))
    yield ""
    took = lines_of(seconds) if seconds.rows else [seconds.title, "not measured here: run make test"]
    yield from side_by_side([*lines_of(walks), "", *lines_of(languages)], took)
    yield ""
    sums = [f"{table.rows[top][0]:,} in {top}" for table, top in ((product, "services"), (tests, "tests"))]
    yield f"code lines: {', '.join(sums)} (make measure AGAINST=main: what differs)"


def differences(before: Sequence[Table], after: Sequence[Table]) -> Differences:
    """All that differs. A row that one side lacks is 0 there; a table
    without rows is left out, because nothing was measured."""
    found: Differences = {}
    for former, now in zip(before, after, strict=True):
        none = (0,) * len(now.columns)
        for row in [*now.rows, *(row for row in former.rows if row not in now.rows)] if former.rows else []:
            pairs = zip(now.columns, former.rows.get(row, none), now.rows.get(row, none), strict=True)
            changed = {column: [one, other] for column, one, other in pairs if one != other}
            if changed:
                found.setdefault(now.title, {})[row] = changed
    return found


def shown(found: Differences) -> Iterator[str]:
    """Yield the lines of a difference."""
    for title, rows in found.items():
        yield f"{title:<40}  {'column':<11}{'before':>9}{'after':>9}{'change':>9}"
        for row, columns in rows.items():
            for column, (one, other) in columns.items():
                yield f"  {row:<38}  {column:<11}{one:>9,}{other:>9,}{other - one:>+9,}"
    if not found:
        yield "nothing differs"


def main(arguments: Sequence[str] | None = None) -> int:
    """arguments: those of the command line if None."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tidy.measure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REV", help="show what differs from this revision of git")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    now = tables(working_tree())
    if given.against is not None:
        try:
            found = differences(tables(tree_of(given.against)), now)
        except subprocess.CalledProcessError as error:
            parser.error(error.stderr.decode().strip())
        print(json.dumps(found, indent=1) if given.output == "json" else "\n".join(shown(found)))
        return 0
    seconds = ROOT / SECONDS
    now.append(seconds_table(seconds.read_text() if seconds.exists() else ""))
    if given.output == "json":
        rows = {
            table.title: {row: dict(zip(table.columns, numbers, strict=True)) for row, numbers in table.rows.items()}
            for table in now
        }
        print(json.dumps(rows, indent=1))
    else:
        print("\n".join(report(now)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
