"""Every hazard of what is built has a test, and the document of hazards and planted bugs is current."""

from tests.tidy.guarantees import DOCUMENT, PLANTED, document, marked, marked_tests
from tests.tidy.hazards import HAZARDS, UNBUILT
from tests.tidy.source import Source


def test_every_hazard_has_a_test() -> None:
    """A marker names a hazard of the registry, and no hazard is without a marker."""
    assert set(marked_tests()) == set(HAZARDS)
    assert {mutant.hazard for mutant in PLANTED} <= {0, *HAZARDS}


def test_every_number_is_accounted_for() -> None:
    """95 hazards are known: each is either closed by a rule here, or part of a feature that is not built."""
    unbuilt = [number for numbers in UNBUILT.values() for number in numbers]
    assert sorted([*HAZARDS, *unbuilt]) == list(range(1, 96))


def test_document_is_current() -> None:
    """After a change of markers, hazards or planted bugs: `make guarantees`."""
    assert document() == DOCUMENT.read_text(), "run make guarantees"


def test_marker_is_found() -> None:
    """The control: one with two numbers, on an asynchronous method, beside another decorator."""
    text = "class T:\n    @other\n    @pytest.mark.hazard(1, 67)\n    async def test_x(self): pass\n"
    assert list(marked(Source("tests/x.py", text))) == [(1, "test_x"), (67, "test_x")]
