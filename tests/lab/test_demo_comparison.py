"""The demo's verdict: it must find everything that can be wrong, or its zeros mean nothing."""

from pathlib import Path

import pytest

from oncelog.cli.produce.line_file import LineFile
from oncelog.lab.demo.acks import Acks
from oncelog.lab.demo.comparison import Comparison, Verdict, whole_file

LINES = [b"one", b"two", b"", b"four"]
OFFSETS = [0, 4, 8, 9]
ALL = list(zip(LINES, OFFSETS, strict=True))


def compared(messages: list[tuple[bytes, int]]) -> Verdict:
    comparison = Comparison(LINES, OFFSETS)
    comparison.add([value for value, _ in messages], [offset for _, offset in messages])
    return comparison.verdict()


def counts(verdict: Verdict) -> tuple[int, int, int]:
    return verdict.lost, verdict.duplicated, verdict.out_of_order


def test_file_as_it_is_is_perfect() -> None:
    """Every line once, in order."""
    verdict = compared(ALL)
    assert verdict == Verdict(4, 4, 0, 0, 0, ())
    assert verdict.perfect


@pytest.mark.parametrize("number", range(len(LINES)))
def test_lost_line_is_found(number: int) -> None:
    """Whichever it is, the first and the last as well."""
    verdict = compared([message for index, message in enumerate(ALL) if index != number])
    assert counts(verdict) == (1, 0, 0)
    assert f"line {number + 1} " in verdict.stories[0]


@pytest.mark.parametrize("number", range(len(LINES)))
def test_line_stored_twice_is_found(number: int) -> None:
    """Wherever the second copy is; it does not count as out of order besides."""
    assert counts(compared([*ALL, ALL[number]])) == (0, 1, 0)
    assert counts(compared([*ALL[: number + 1], ALL[number], *ALL[number + 1 :]])) == (0, 1, 0)


def test_line_that_was_overtaken_is_found() -> None:
    """One message that is late is one out of order."""
    assert counts(compared([ALL[0], ALL[2], ALL[1], ALL[3]])) == (0, 0, 1)


def test_altered_line_is_lost_and_one_too_many() -> None:
    """The offset alone proves nothing: the bytes count."""
    verdict = compared([ALL[0], (b"twO", 4), ALL[2], ALL[3]])
    assert counts(verdict) == (1, 1, 0)
    assert verdict.stored == verdict.lines - verdict.lost + verdict.duplicated


def test_message_from_elsewhere_is_found() -> None:
    """A message at an offset that is no line's is one too many, even with the bytes of a line."""
    assert counts(compared([*ALL, (b"one", 1)])) == (0, 1, 0)


def test_whole_file_is_all_lines(tmp_path: Path) -> None:
    """What the topic is compared with is the file itself, byte by byte."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n\nfour")
    with LineFile(path, block_bytes=3, final=True) as file:
        assert whole_file(file) == (LINES, OFFSETS)


def test_gap_is_the_longest_silence_around_a_kill() -> None:
    """The silence may begin before the kill is told and end after the new owner serves; others do not count."""
    acks = Acks()
    for number, time_s in enumerate([1.0, 1.02, 1.04, 1.54, 1.56, 9.0]):
        acks.add(time_s=time_s, offset=number, duplicates=0)
    assert acks.gap_ms(1.05, 1.5) == pytest.approx(500.0)
    assert acks.gap_ms(1.01, 1.03) == pytest.approx(20.0)
    assert acks.gap_ms(1.01, 1.2) == pytest.approx(500.0)


def test_duplicates_of_all_lives_add_up() -> None:
    """Each run of the producer counts its own; a replay takes back nothing of what is acknowledged."""
    acks = Acks()
    acks.add(time_s=1.0, offset=100, duplicates=0)
    acks.life_began()
    acks.add(time_s=2.0, offset=50, duplicates=5)
    assert (acks.duplicates, acks.offset) == (5, 100)
    acks.life_began()
    acks.add(time_s=3.0, offset=120, duplicates=2)
    assert (acks.duplicates, acks.offset) == (7, 120)
