"""Every hazard of what is built has a test, and the document of hazards and planted bugs is current."""

import re

from tests.simulation.planted.mutants import MUTANTS
from tests.tidy.guarantees import DOCUMENT, document, marked, marked_tests
from tests.tidy.hazards import HAZARDS
from tests.tidy.source import Source


def test_every_hazard_has_a_test() -> None:
    """A marker names a hazard of the registry, and no hazard is without a marker."""
    assert set(marked_tests()) == set(HAZARDS)
    assert {mutant.hazard for mutant in MUTANTS} <= {"", *HAZARDS}


def test_names_can_be_read() -> None:
    """A few words with hyphens, so that a reader of the code needs no table."""
    assert [name for name in HAZARDS if not re.fullmatch(r"[a-z]+(-[a-z]+){1,6}", name)] == []


def test_document_is_current() -> None:
    """After a change of markers, hazards or planted bugs: `make guarantees`."""
    assert document() == DOCUMENT.read_text(), "run make guarantees"


def test_marker_is_found() -> None:
    """The control: one with two names, on an asynchronous method, beside another decorator."""
    text = "class T:\n    @other\n    @pytest.mark.hazard('one', 'two')\n    async def test_x(self): pass\n"
    assert list(marked(Source("tests/x.py", text))) == [("one", "test_x"), ("two", "test_x")]


def test_marker_of_a_story_is_found() -> None:
    """The control: in a heading, not in a comment."""
    text = "# A file (hazard zero).\n\n## It holds (hazard one, two).\n# As (hazard three).\nadd\n----\n"
    assert list(marked(Source("tests/x/stories/y.txt", text))) == [
        ("one", "test_story[y: It holds]"),
        ("two", "test_story[y: It holds]"),
    ]
