"""`oncelog` with a file as its standard input, which a fork has not: its path comes before the words of the command."""

import os
import sys

from oncelog.cli.__main__ import main as run_words


def main() -> None:
    os.dup2(os.open(sys.argv.pop(1), os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    run_words()
