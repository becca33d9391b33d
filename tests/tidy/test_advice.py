"""No message, help text or document advises to destroy data (hazard emptied-zookeeper): in doubt, a directory is
kept."""

import re

import pytest

from tests.tidy.source import PRODUCT, ROOT

#: Imperatives, and commands that delete the content of a directory.
ADVICE = re.compile(
    r"\b(wipe|erase|empty|clear) (the|this|its|that) (data )?(directory|disk|volume)|\bwipe\b|rm -r| -delete\b",
    re.IGNORECASE,
)
PLACES = (
    *(path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.txt")),
)


@pytest.mark.hazard("emptied-zookeeper")
def test_nothing_advises_to_destroy_data() -> None:
    """A storage node whose cluster was not found once advised to wipe its directory: the only copies of messages."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in PLACES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if ADVICE.search(line)
    ]
    assert found == []
