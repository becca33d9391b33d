"""The verdict finds each planted error, and nothing in a correct log."""

from collections.abc import Callable

import pytest

from oncelog.verify.violation import Violation
from oncelog_lab.acknowledgements import AckPauses, AckRecord, SendFate, longest_pause_ms
from oncelog_lab.verdict import FAULTS, LogChecker, LogVerdict, ReadEntry, ReaderTrail
from oncelog_lab.workload.messages import message_value, parse_value

SEED = 11
TOPIC = "public/chaos/t"
COUNT = 12
Values = list[bytes]


def correct_log() -> Values:
    """Two clients in alternation, twelve messages each."""
    return [message_value(client, number, SEED) for number in range(COUNT) for client in ("named-1", "automatic-1.1")]


def identify(value: bytes, _sequence_id: int) -> tuple[str, int]:
    return parse_value(value, SEED)


def sent(fate: SendFate = SendFate.ACKNOWLEDGED) -> AckRecord:
    record = AckRecord()
    for client in ("named-1", "automatic-1.1"):
        record.note(client, 0, COUNT, fate)
    return record


def entries(values: Values, *, size: int = 5) -> list[ReadEntry]:
    return [ReadEntry(TOPIC, at, values[at : at + size]) for at in range(0, len(values), size)]


def check(values: Values, record: AckRecord | None = None) -> LogVerdict:
    checker = LogChecker(record or sent(), identify)
    checker.add(entries(values))
    return checker.verdict()


def wrong(verdict: LogVerdict) -> dict[str, int]:
    """{what is wrong: how often}. Each of them alone fails the verdict."""
    found = {name: getattr(verdict, name) for name in FAULTS if getattr(verdict, name)}
    assert verdict.perfect is (not found)
    return found


def test_correct_log_is_perfect() -> None:
    """All messages acknowledged, stored once and in order."""
    verdict = check(correct_log())
    assert verdict.perfect
    assert (verdict.acked, verdict.stored, verdict.violations) == (2 * COUNT, 2 * COUNT, ())


def test_messages_with_unknown_fate_may_be_stored_or_not() -> None:
    """None of them was acknowledged."""
    verdict = check(correct_log(), sent(SendFate.UNKNOWN))
    assert (verdict.perfect, verdict.acked, verdict.stored) == (True, 0, 2 * COUNT)
    assert check([], sent(SendFate.UNKNOWN)).perfect


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
        (_change, {"lost": 1, "unexpected": 1}),
        (_invent, {"unexpected": 1}),
        (_of_another_run, {"unexpected": 1}),
    ],
)
def test_planted_error_is_found(plant: Callable[[Values], None], found: dict[str, int]) -> None:
    """Lost, duplicated, swapped, changed, invented: each is counted as what it is, and described."""
    values = correct_log()
    plant(values)
    verdict = check(values)
    assert wrong(verdict) == found
    assert verdict.violations


def test_every_late_message_counts() -> None:
    """Not only the first message after a later one."""
    early = [message_value("named-1", number, SEED) for number in (0, 5, 1, 2, 3, 4)]
    record = AckRecord()
    record.note("named-1", 0, 6, SendFate.ACKNOWLEDGED)
    assert wrong(check(early, record)) == {"out_of_order": 4}


def test_number_of_described_violations_is_limited() -> None:
    """The verdict is one line, and a lost log has a million violations."""
    verdict = check([])
    assert wrong(verdict) == {"lost": 2 * COUNT}
    assert 0 < len(verdict.violations) < COUNT


def test_lost_at_the_end_is_found() -> None:
    """There is no gap in the index: only the acknowledgement shows the loss."""
    assert wrong(check(correct_log()[:-3])) == {"lost": 3}


def test_refused_message_in_the_log_is_found() -> None:
    """A permanently refused message must not be stored."""
    record = sent()
    record.note("named-1", COUNT, 1, SendFate.REFUSED)
    assert check(correct_log(), record).perfect
    assert wrong(check([*correct_log(), message_value("named-1", COUNT, SEED)], record)) == {"unexpected": 1}


def test_retry_with_unknown_result_does_not_revoke_an_acknowledgement() -> None:
    """An acknowledged message must be stored."""
    record = sent()
    record.note("named-1", 0, COUNT, SendFate.UNKNOWN)
    assert wrong(check([], record)) == {"lost": 2 * COUNT}


def test_gap_in_the_index_is_found() -> None:
    """base_index counts every message."""
    checker = LogChecker(sent(), identify)
    values = correct_log()
    checker.add([ReadEntry(TOPIC, 0, values[:5]), ReadEntry(TOPIC, 6, values[5:])])
    assert wrong(checker.verdict()) == {"index_gaps": 1}


def test_index_that_goes_back_is_found() -> None:
    """An index must not belong to two messages."""
    checker = LogChecker(sent(), identify)
    values = correct_log()
    checker.add([ReadEntry(TOPIC, 0, values[:5]), ReadEntry(TOPIC, 4, values[5:])])
    assert wrong(checker.verdict())["index_gaps"] == 1


def trail(values: Values, *, first: int = 0, from_start: bool = True) -> ReaderTrail:
    seen = ReaderTrail("reader", TOPIC, from_start=from_start)
    seen.add(ReadEntry(TOPIC, first, values[first:]))
    return seen


def test_readers_of_the_same_log_agree() -> None:
    """A reader from the start, one from the middle, and one without any message."""
    values = correct_log()
    checker = LogChecker(sent(), identify)
    checker.add(entries(values))
    checker.compare(trail(values))
    checker.compare(trail(values, first=9, from_start=False))
    checker.compare(ReaderTrail("idle", TOPIC, from_start=False))
    assert checker.verdict().perfect


def test_reader_of_another_log_is_found() -> None:
    """Other messages, another order, an early end, and a reader that failed."""
    values = correct_log()
    swapped = [values[1], values[0], *values[2:]]
    for seen, failure in (
        (trail(swapped), None),
        (trail(values[:-1]), None),
        (trail([*values, b"more"]), None),
        (trail(values), "it could not continue"),
    ):
        checker = LogChecker(sent(), identify)
        checker.add(entries(values))
        checker.compare(seen, failure)
        assert wrong(checker.verdict()) == {"reader_mismatches": 1}


def test_reader_finds_omitted_and_repeated_messages() -> None:
    """At once, while it follows the topic."""
    values = correct_log()
    for index in (4, 6):
        seen = ReaderTrail("reader", TOPIC, from_start=True)
        seen.add(ReadEntry(TOPIC, 0, values[:5]))
        with pytest.raises(Violation, match="reader_mismatches"):
            seen.add(ReadEntry(TOPIC, index, values[5:7]))
    with pytest.raises(Violation, match="reader_mismatches"):
        ReaderTrail("reader", TOPIC, from_start=True).add(ReadEntry(TOPIC, 1, values[1:]))


def test_value_names_its_client_and_number() -> None:
    """A value with one changed byte belongs to no client."""
    value = message_value("named-1", 41, SEED)
    assert parse_value(value, SEED) == ("named-1", 41)
    for foreign in (b"", b"x", value[:-1], value + b"0", value.replace(b"41", b"42", 1), b"\xff 1 x"):
        with pytest.raises(Violation, match="unexpected"):
            parse_value(foreign, SEED)


def test_longest_pause_may_begin_before_the_fault_and_end_after_it() -> None:
    """Other pauses do not count."""
    pauses = AckPauses()
    for at_s in (1.0, 1.02, 1.04, 1.54, 1.56, 9.0):
        pauses.acknowledged("one", at_s)
    assert longest_pause_ms(pauses.pauses, 1.05, 1.5) == pytest.approx(500.0)
    assert longest_pause_ms(pauses.pauses, 1.02, 1.03) == pytest.approx(20.0)
    assert longest_pause_ms(pauses.pauses, 1.05) == pytest.approx(7440.0)
    assert longest_pause_ms(pauses.pauses, 1.05, 1.5, ("other",)) is None
