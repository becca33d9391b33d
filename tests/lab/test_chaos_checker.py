"""The chaos checker finds each planted error, and nothing in a log that is right."""

from collections.abc import Callable

import pytest

from oncelog.lab.chaos.checker import (
    Checker,
    Fate,
    Promises,
    ReadEntry,
    ReaderTrail,
    Verdict,
    message_value,
    parse_value,
)
from oncelog.verify.violation import Violation

SEED = 11
TOPIC = "public/chaos/t"
COUNT = 12
Values = list[bytes]


def right_log() -> Values:
    """Two clients in turns, twelve messages each."""
    return [message_value(client, number, SEED) for number in range(COUNT) for client in ("named-1", "automatic-1.1")]


def promises(fate: Fate = Fate.STORED) -> Promises:
    noted = Promises()
    for client in ("named-1", "automatic-1.1"):
        noted.note(client, 0, COUNT, fate)
    return noted


def entries(values: Values, *, size: int = 5) -> list[ReadEntry]:
    return [ReadEntry(TOPIC, at, values[at : at + size]) for at in range(0, len(values), size)]


def judge(values: Values, noted: Promises | None = None) -> Verdict:
    checker = Checker(noted or promises(), SEED)
    checker.add(entries(values))
    return checker.verdict()


def wrong(verdict: Verdict) -> dict[str, int]:
    """{what is wrong: how often}; each of them alone makes the verdict a bad one."""
    names = ("lost", "duplicated", "out_of_order", "ghosts", "holes", "disagreements")
    found = {name: getattr(verdict, name) for name in names if getattr(verdict, name)}
    assert verdict.perfect is (not found)
    return found


def test_right_log_is_perfect() -> None:
    """All acknowledged, all there, once and in order."""
    verdict = judge(right_log())
    assert verdict.perfect
    assert (verdict.acked, verdict.stored, verdict.stories) == (2 * COUNT, 2 * COUNT, ())


def test_messages_in_doubt_may_be_there_or_not() -> None:
    """Nobody was promised anything, and nothing counts as acknowledged."""
    verdict = judge(right_log(), promises(Fate.INFO))
    assert (verdict.perfect, verdict.acked, verdict.stored) == (True, 0, 2 * COUNT)
    assert judge([], promises(Fate.INFO)).perfect


def _drop(values: Values) -> None:
    del values[7]


def _double(values: Values) -> None:
    values.append(values[3])


def _swap(values: Values) -> None:
    values[4], values[6] = values[6], values[4]


def _change(values: Values) -> None:
    values[9] = values[9][:-1] + b"x"


def _invent(values: Values) -> None:
    values.append(message_value("named-1", COUNT, SEED))


def _of_another_run(values: Values) -> None:
    values.append(message_value("named-1", 0, SEED + 1))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_drop, {"lost": 1}),
        (_double, {"duplicated": 1}),
        (_swap, {"out_of_order": 1}),
        (_change, {"lost": 1, "ghosts": 1}),
        (_invent, {"ghosts": 1}),
        (_of_another_run, {"ghosts": 1}),
    ],
)
def test_planted_error_is_found(plant: Callable[[Values], None], found: dict[str, int]) -> None:
    """Lost, doubled, swapped, changed, invented: each is seen, counted as what it is, and told."""
    values = right_log()
    plant(values)
    verdict = judge(values)
    assert wrong(verdict) == found
    assert verdict.stories


def test_each_message_that_comes_too_late_counts() -> None:
    """All that stand behind a later one, not only the first of them."""
    early = [message_value("named-1", number, SEED) for number in (0, 5, 1, 2, 3, 4)]
    noted = Promises()
    noted.note("named-1", 0, 6, Fate.STORED)
    assert wrong(judge(early, noted)) == {"out_of_order": 4}


def test_few_stories_are_told_of_much_that_is_wrong() -> None:
    """The verdict is one line, and a lost log is a million stories."""
    verdict = judge([])
    assert wrong(verdict) == {"lost": 2 * COUNT}
    assert 0 < len(verdict.stories) < COUNT


def test_lost_at_the_end_is_found() -> None:
    """Nothing behind it makes it a hole: only the promise tells of it."""
    assert wrong(judge(right_log()[:-3])) == {"lost": 3}


def test_refused_and_stored_is_found() -> None:
    """What was refused for good must not be there."""
    noted = promises()
    noted.note("named-1", COUNT, 1, Fate.FAILED)
    assert judge(right_log(), noted).perfect
    assert wrong(judge([*right_log(), message_value("named-1", COUNT, SEED)], noted)) == {"ghosts": 1}


def test_answer_is_not_taken_back_by_a_retry_in_doubt() -> None:
    """A message that was stored once is promised for ever."""
    noted = promises()
    noted.note("named-1", 0, COUNT, Fate.INFO)
    assert wrong(judge([], noted)) == {"lost": 2 * COUNT}


def test_hole_in_the_index_is_found() -> None:
    """base_index counts every message: readers would ask for one that is not there."""
    checker = Checker(promises(), SEED)
    values = right_log()
    checker.add([ReadEntry(TOPIC, 0, values[:5]), ReadEntry(TOPIC, 6, values[5:])])
    assert wrong(checker.verdict()) == {"holes": 1}


def test_index_that_goes_back_is_found() -> None:
    """The same number must not stand for two messages."""
    checker = Checker(promises(), SEED)
    values = right_log()
    checker.add([ReadEntry(TOPIC, 0, values[:5]), ReadEntry(TOPIC, 4, values[5:])])
    assert wrong(checker.verdict())["holes"] == 1


def trail(values: Values, *, first: int = 0, from_start: bool = True) -> ReaderTrail:
    seen = ReaderTrail("reader", TOPIC, from_start=from_start)
    seen.add(ReadEntry(TOPIC, first, values[first:]))
    return seen


def test_readers_that_agree_are_right() -> None:
    """From the start, from the middle, and one that came when nothing more did."""
    values = right_log()
    checker = Checker(promises(), SEED)
    checker.add(entries(values))
    checker.compare(trail(values))
    checker.compare(trail(values, first=9, from_start=False))
    checker.compare(ReaderTrail("idle", TOPIC, from_start=False))
    assert checker.verdict().perfect


def test_reader_that_saw_another_log_is_found() -> None:
    """Other messages, other order, an end too early, and a rule that it found broken itself."""
    values = right_log()
    swapped = [values[1], values[0], *values[2:]]
    for seen, failure in (
        (trail(swapped), None),
        (trail(values[:-1]), None),
        (trail([*values, b"more"]), None),
        (trail(values), "it could read no further"),
    ):
        checker = Checker(promises(), SEED)
        checker.add(entries(values))
        checker.compare(seen, failure)
        assert wrong(checker.verdict()) == {"disagreements": 1}


def test_reader_notices_what_is_left_out_or_repeated() -> None:
    """At once, while it follows."""
    values = right_log()
    for index in (4, 6):
        seen = ReaderTrail("reader", TOPIC, from_start=True)
        seen.add(ReadEntry(TOPIC, 0, values[:5]))
        with pytest.raises(Violation, match="one log"):
            seen.add(ReadEntry(TOPIC, index, values[5:7]))
    with pytest.raises(Violation, match="one log"):
        ReaderTrail("reader", TOPIC, from_start=True).add(ReadEntry(TOPIC, 1, values[1:]))


def test_value_tells_whose_it_is() -> None:
    """And one that was changed in a single byte is nobody's."""
    value = message_value("named-1", 41, SEED)
    assert parse_value(value, SEED) == ("named-1", 41)
    for foreign in (b"", b"x", value[:-1], value + b"0", value.replace(b"41", b"42", 1), b"\xff 1 x"):
        with pytest.raises(Violation, match="no ghost"):
            parse_value(foreign, SEED)
