"""The terminal of a view: its size, and frames that replace each other."""

import shutil
import sys

#: Of the terminal's second screen: what was there before comes back at the end.
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
#: Go to the corner, write the frame, and clear what is left of the former one.
HOME, CLEAR_REST, CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"


def is_terminal() -> bool:
    return sys.stdout.isatty()


def width() -> int | None:
    """Columns of standard output; None: it is no terminal, and nothing is cut."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def height() -> int:
    return shutil.get_terminal_size().lines


def frame(lines: list[str]) -> str:
    """The lines in place of the former ones. Those for which there is no room are left out."""
    shown = lines[: max(height() - 1, 1)]
    return HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in shown) + CLEAR_REST
