"""The notes of a storage node: which of a path stays, the digest, and the bytes."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptEntry, InvalidArgument
from oncelog.core.formats.note import VALUE_BYTES_MAX, Note, NoteOrder, digest_of
from oncelog.core.node.notes import HeldNotes

PATH = "/policies/namespaces/public/default"


def note(created: int, version: int, *, era: int = 1, deleted: bool = False, path: str = PATH) -> Note:
    value = b"" if deleted else f"{era}.{created}.{version}".encode()
    return Note(path, NoteOrder(era, created, deleted, version), value)


#: A record that is written twice, deleted, made again and carried into the next era, from old to new.
HISTORY = (note(7, 0), note(7, 1), note(7, 1, deleted=True), note(9, 0), note(3, 0, era=2))


@pytest.mark.hazard("late-note")
def test_newest_note_of_a_path_stays_in_every_order_of_arrival() -> None:
    """Every order of every part of the history; twice is once. What is freed and what is held are all places."""
    for count in range(1, len(HISTORY) + 1):
        for arrived in permutations(range(len(HISTORY)), count):
            held: HeldNotes[int] = HeldNotes()
            freed = [held.put(HISTORY[at].encode(), place) for place, at in enumerate(arrived)]
            newest = max(arrived)
            kept = held.get(PATH)
            assert kept is not None
            assert kept.order == HISTORY[newest].order, arrived
            assert {one for one in freed if one is not None} | {kept.place} == set(range(count))
            assert held.digest == digest_of([HISTORY[newest]])
            again = held.put(HISTORY[newest].encode(), count)
            assert again == kept.place, "the copy is used, the first place is free"


NOTES = st.builds(
    note,
    st.integers(1, 3),
    st.integers(0, 2),
    era=st.integers(1, 2),
    deleted=st.booleans(),
    path=st.sampled_from(["/names/a/b/c", "/names/a/b/d", PATH]),
)


@given(st.lists(NOTES, max_size=12), st.randoms(use_true_random=False))
def test_digest_depends_on_the_newest_notes_only(notes: list[Note], random: object) -> None:
    """Two nodes that got the same notes in other orders have equal digests; so has the tree of these records."""
    shuffled = list(notes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one: HeldNotes[int] = HeldNotes()
    other: HeldNotes[int] = HeldNotes()
    for place, each in enumerate(notes):
        one.put(each.encode(), place)
    for place, each in enumerate(shuffled):
        other.put(each.encode(), place)
    newest = {each.path: each for each in sorted(notes, key=lambda each: each.order)}
    assert one.digest == other.digest == digest_of(newest.values())
    assert [path for path, _ in one.behind("", 10)] == sorted(newest)
    for path in sorted(newest):
        one.drop(path)
    assert one.digest == digest_of([])


def test_every_part_of_a_note_changes_the_digest() -> None:
    first = note(1, 0)
    others = [
        note(1, 1),
        note(2, 0),
        note(1, 0, era=2),
        note(1, 0, path="/cluster"),
        Note(PATH, first.order, first.value + b" "),
    ]
    assert len({digest_of([each]) for each in [first, *others]}) == 6


def test_bytes_of_a_note() -> None:
    written = Note("/names/über", NoteOrder(4095, 2**62, True, 2**40), bytes(range(256)))
    assert Note.decode(written.encode()) == written
    assert Note.decode(memoryview(written.encode())) == written
    encoded = written.encode()
    for wrong in (b"", b"\2" + encoded[1:], encoded[:10], encoded[:34], encoded[:32] + b"\xff" * 20):
        with pytest.raises(CorruptEntry):
            Note.decode(wrong)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (Note("names", NoteOrder(1, 1, False, 0), b""), "path"),
        (Note("/" + "x" * 5000, NoteOrder(1, 1, False, 0), b""), "path"),
        (Note(PATH, NoteOrder(1, 1, False, 0), b"x" * (VALUE_BYTES_MAX + 1)), "value"),
        (Note(PATH, NoteOrder(2**40, 1, False, 0), b""), "era"),
    ],
)
def test_note_beyond_a_limit_is_refused(wrong: Note, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        wrong.encode()
    assert refused.value.details["field"] == field
