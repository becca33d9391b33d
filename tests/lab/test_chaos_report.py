"""The chaos report: whose pause counts for which fault, the figures of a kind, and what people are shown."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from oncelog.lab.chaos.report import Report, gap_ms, make_report, show, told_pauses
from oncelog.lab.chaos.runner import Faults, Hit, Miss
from oncelog.lab.chaos.schedule import Fault, Kind, Step
from oncelog.lab.chaos.target import Struck
from oncelog.lab.chaos.workload_link import Pause

NAMES = ("lost", "duplicated", "out_of_order", "ghosts", "holes", "disagreements")
RIGHT: dict[str, Any] = {"acked": 10, "stored": 12, **dict.fromkeys(NAMES, 0), "stories": []}


def hit(kind: Kind, at_s: float, healed_at_s: float | None) -> Hit:
    return Hit(1, Struck(Fault(kind, 0), "somebody", at_s), healed_at_s)


def plan(*kinds: Kind) -> list[Step]:
    return [Step(number, 2.0, (Fault(kind, 0),)) for number, kind in enumerate(kinds, start=1)]


def report(faults: Faults, *planned: Kind, pauses: Sequence[Pause] = (), **wrong: Any) -> Report:
    return make_report(7, plan(*planned), faults, pauses, {**RIGHT, **wrong})


def shown(made: Report) -> str:
    text = StringIO()
    show(made, Console(file=text, width=200))
    return text.getvalue()


def test_figure_of_a_fault_is_the_longest_pause_from_strike_to_healing() -> None:
    """Of publishers that stay open; what ended before the strike, or began after the healing, is another fault's."""
    pauses = [
        Pause("steady-1", 9_000.0, 99.0),
        Pause("steady-1", 400.0, 101.0),
        Pause("steady-2", 700.0, 102.0),
        Pause("steady-2", 800.0, 99.9),
        Pause("named-1", 2_000.0, 103.0),
        Pause("http-1", 3_000.0, 104.0),
        Pause("steady-2", 8_000.0, 120.0),
    ]
    assert gap_ms(hit(Kind.OWNER_KILL, 100.0, 110.0), pauses) == 700.0
    assert gap_ms(hit(Kind.OWNER_KILL, 100.0, None), pauses) == 8_000.0, "it never healed"
    assert gap_ms(hit(Kind.OWNER_KILL, 300.0, 310.0), pauses) is None


def test_publishers_over_http_count_for_redis_alone() -> None:
    """Nobody else waits for it, and they wait longer than others at other faults."""
    pauses = [Pause("steady-1", 500.0, 101.0), Pause("http-1", 3_000.0, 104.0)]
    assert gap_ms(hit(Kind.REDIS_KILL, 100.0, 110.0), pauses) == 3_000.0
    assert gap_ms(hit(Kind.METADATA_KILL, 100.0, 110.0), pauses) == 500.0


def test_timeline_tells_the_longest_pause_of_each_client() -> None:
    """Short ones are the pace of the workload."""
    pauses = [Pause("named-1", ms, 101.0) for ms in (300.0, 900.0, 400.0)]
    pauses += [Pause("http-1", 260.0, 101.0), Pause("automatic-1", 240.0, 101.0)]
    one = hit(Kind.OWNER_KILL, 100.0, 110.0)
    assert told_pauses(one, pauses) == "http-1 260 ms, named-1 900 ms"
    assert told_pauses(one, pauses[-1:]) == "none above 250 ms"


def test_figures_of_a_kind_are_those_of_its_hits() -> None:
    """Median and longest, in whatever order they struck; a planned kind that never struck has a row, too."""
    at = {100.0: 500.0, 200.0: 200.0, 300.0: 300.0}
    pauses = [Pause("steady-1", ms, at_s + 1) for at_s, ms in at.items()]
    pauses += [Pause(client, ms, 201.0) for client, ms in (("named-1", 800.0), ("automatic-1", 600.0))]
    pauses += [Pause("named-1", 100.0, 301.0)]
    faults = Faults(hits=[hit(Kind.OWNER_KILL, at_s, at_s + 10) for at_s in at])
    made = report(faults, *[Kind.OWNER_KILL] * 4, Kind.STORAGE_KILL, pauses=pauses)
    names = ("kind", "count", "planned", "client_gap_ms_p50", "client_gap_ms_max", "opening_gap_ms_max")
    told: Any = made.to_json()["faults"]
    assert [tuple(kind[name] for name in names) for kind in told] == [
        ("owner-kill", 3, 4, 300.0, 500.0, 800.0),
        ("storage-kill", 0, 1, None, None, None),
    ]


def test_share_of_long_pauses_is_of_all_pauses_around_a_kind_each_once() -> None:
    """Of those that stay open; before, between and behind the faults is another matter."""
    faults = Faults(hits=[hit(Kind.METADATA_KILL, 100.0, 110.0), hit(Kind.METADATA_KILL, 105.0, 115.0)])
    faults.hits.append(hit(Kind.REDIS_KILL, 100.0, 110.0))
    pauses = [Pause("steady-1", ms, 101.0 + number) for number, ms in enumerate((100.0, 151.0, 100.0, 150.0))]
    pauses += [Pause("steady-2", 900.0, 107.0), Pause("steady-2", 100.0, 112.0), Pause("named-1", 900.0, 107.0)]
    pauses += [Pause("steady-1", 900.0, 99.0), Pause("steady-1", 900.0, 130.0), Pause("http-1", 900.0, 101.0)]
    planned = plan(Kind.METADATA_KILL, Kind.REDIS_KILL)
    made = make_report(7, planned, faults, pauses, RIGHT, 150.0)
    told: Any = made.to_json()["faults"]
    assert [kind["above_quiet"] for kind in told] == [round(2 / 6, 4), None]
    assert "33.3%" in shown(made)
    assert "%" not in shown(make_report(7, planned, faults, pauses, RIGHT, None)), "there was no quiet time"


def test_right_log_under_all_faults_passes() -> None:
    """The control of the next test."""
    made = report(Faults(hits=[hit(Kind.OWNER_KILL, 1.0, 2.0)]), Kind.OWNER_KILL)
    outcome = made.to_json()
    assert (outcome["ok"], outcome["missed"], outcome["unhealed"]) == (True, [], None)
    assert "passed" in shown(made)


@pytest.mark.parametrize(
    ("faults", "wrong", "said"),
    [
        (Faults(), {"lost": 1, "stories": ["a 7 was answered and is not in the log"]}, "a 7 was answered"),
        (Faults(misses=[Miss(3, Fault(Kind.OWNER_KILL, 0), "nobody is there")]), {}, "step 3, owner-kill: nobody is"),
        (Faults(unhealed="step 2 did not heal"), {}, "step 2 did not heal"),
        (Faults(), {"acked": 0}, "0 acked"),
    ],
)
def test_what_is_wrong_fails_the_run_and_is_told(faults: Faults, wrong: dict[str, Any], said: str) -> None:
    """To people and to programs: a message, a fault that never struck, one that never healed, a load that never was."""
    made = report(faults, Kind.OWNER_KILL, **wrong)
    outcome = made.to_json()
    assert outcome["ok"] is False
    assert "FAILED" in shown(made)
    assert said in shown(made)
    assert outcome["missed"] == [f"step {miss.step}, {miss.fault.kind}: {miss.reason}" for miss in faults.misses]
    assert outcome["unhealed"] == faults.unhealed
    assert outcome["stories"] == wrong.get("stories", [])
