"""Tables of views that are shown again and again: names on the left, figures on the right, in a given width. Pure."""

from collections.abc import Sequence

_GAP = "  "
_NAME_CHARACTERS_MIN = 8


def lines_of(title: Sequence[str], rows: Sequence[Sequence[str]], names: int, width: int | None) -> list[str]:
    """The table with its title. names: so many columns at the left are names, which are cut in their middle if the
    table is wider than `width`; None: they are whole."""
    table = [title, *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in table) for column in range(len(title))]
    if width is not None:
        figures = sum(widths[names:]) + len(_GAP) * (len(title) - 1)
        widths[:names] = _shared(widths[:names], width - figures)
    return [
        _GAP.join(
            cut(cell, size).ljust(size) if column < names else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Room for each name: the shortest get all that they want."""
    sizes = list(wanted)
    left = room
    for rank, column in enumerate(sorted(range(len(wanted)), key=lambda each: wanted[each])):
        sizes[column] = min(wanted[column], max(left // (len(wanted) - rank), _NAME_CHARACTERS_MIN))
        left -= sizes[column]
    return sizes


def cut(text: str, size: int) -> str:
    """Its beginning and its end: both tell names apart."""
    if len(text) <= size:
        return text
    behind = (size - 1) // 2
    return f"{text[: size - 1 - behind]}…{text[len(text) - behind :]}"


def printable(text: str) -> str:
    """Without what would move the cursor or turn the direction of writing."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
