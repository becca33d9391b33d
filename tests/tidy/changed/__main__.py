"""`python -m tests.tidy.changed`: print the test files that depend on what differs from main, one in each line.

pytest $(python -m tests.tidy.changed)
python -m tests.tidy.changed --against HEAD     what differs from the last commit
python -m tests.tidy.changed FILE …             as if these files had changed
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.tidy.changed.selection import changed_files, reason_for_all, selected_tests
from tests.tidy.source import repository


def main(arguments: Sequence[str] | None = None) -> int:
    """arguments: those of the command line if None."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tidy.changed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--against", metavar="REV", default="main", help="a revision of git (main)")
    given = parser.parse_args(arguments)
    try:
        changed = given.files or changed_files(given.against)
    except subprocess.CalledProcessError as error:
        parser.error(error.stderr.strip())
    tree = {source.path: source.text for source in repository()}
    tests = selected_tests(tree, changed)
    why = reason_for_all(changed) or f"{len(changed)} files differ"
    print(f"{why}: {len(tests)} test files", file=sys.stderr)
    print("\n".join(tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
