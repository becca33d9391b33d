"""Which notes a restore believes, if it has a copy of the newest era."""

import pytest

from oncelog.core.formats.note import NoteOrder
from oncelog.core.rebuild.sources import CopiedEra

THERE, MISSING = "/names/public/default/orders", "/tombstones/7"
COPIED = CopiedEra(3, {THERE})


@pytest.mark.hazard("note-of-a-former-era")
@pytest.mark.parametrize("deleted", [False, True])
def test_note_of_a_former_era_says_nothing_about_a_record_that_the_copy_lacks(deleted: bool) -> None:
    """The restore of this era has not found it. It was noted later, by a process of the former era, at a node that did
    not know the new one."""
    assert not COPIED.believes(MISSING, NoteOrder(2, 9, deleted, 4))


@pytest.mark.parametrize("era", [2, 3, 4])
def test_note_about_a_record_that_the_copy_has_is_compared_with_it(era: int) -> None:
    """What was deleted in a former era has a tombstone in the copy, and stays deleted. If the copy's own state cannot
    be read, an older one is better than none."""
    assert COPIED.believes(THERE, NoteOrder(era, 9, False, 4))


@pytest.mark.parametrize("deleted", [False, True])
def test_note_of_this_era_is_believed_also_if_the_copy_lacks_the_record(deleted: bool) -> None:
    """It was made or deleted after the copy."""
    assert COPIED.believes(MISSING, NoteOrder(3, 9, deleted, 0))


def test_each_note_is_believed_if_there_is_no_copy() -> None:
    assert CopiedEra().believes(MISSING, NoteOrder(1, 9, True, 4))
