"""How fast one role may open and look up."""

from oncelog_doors.core.shared.pace import BURST, KEPT_MAX, PER_SECOND, Pace


def test_requests_beyond_the_rate_are_delayed_evenly() -> None:
    """200 at once, then 200 a second, however many come: none is refused."""
    pace = Pace()
    due = [pace.due_ms("importer", 1000) for _ in range(BURST + 2 * PER_SECOND)]
    assert due[:BURST] == [1000] * BURST
    assert due[BURST:] == [1000 + 5 * number for number in range(1, 2 * PER_SECOND + 1)]


def test_pause_makes_room_again() -> None:
    """For as many requests as would have come in it."""
    pace = Pace()
    for _ in range(BURST):
        pace.due_ms("importer", 0)
    assert [pace.due_ms("importer", 50) for _ in range(11)] == [50] * 10 + [55]
    assert [pace.due_ms("importer", 10_000) for _ in range(BURST + 1)][-2:] == [10_000, 10_005]


def test_roles_do_not_delay_each_other() -> None:
    """Each has its own pace."""
    pace = Pace()
    assert [pace.due_ms("importer", 0) for _ in range(BURST + 1)][-1] == 5
    assert pace.due_ms("billing", 0) == 0


def test_roles_that_have_paused_are_forgotten() -> None:
    """Those that have not keep their delay."""
    pace = Pace()
    for _ in range(BURST + 1):
        pace.due_ms("busy", 10)
    for number in range(KEPT_MAX):
        pace.due_ms(number, 0)
    assert pace.due_ms("late", 10) == 10
    assert len(pace) < 10
    assert pace.due_ms("busy", 10) == 20
