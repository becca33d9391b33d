"""The chaos report: which pause counts for which fault, the figures of a kind, and the table."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from oncelog_lab.acknowledgements import AckPause
from oncelog_lab.chaos.report import ChaosReport, gap_ms, make_report, pauses_text, show_report
from oncelog_lab.chaos.runner import FaultHit, FaultMiss, FaultResults
from oncelog_lab.chaos.schedule import FaultStep
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import Fault, FaultKind
from oncelog_lab.faults.replacement import WAITED_S
from oncelog_lab.verdict import LogVerdict

RIGHT: dict[str, Any] = LogVerdict(acked=10, stored=12).to_json() | {"violations": []}


def hit(kind: FaultKind, at_s: float, healthy_at_s: float | None) -> FaultHit:
    return FaultHit(1, InjectedFault(Fault(kind, 0), "victim", at_s), healthy_at_s)


def plan(*kinds: FaultKind) -> list[FaultStep]:
    return [FaultStep(number, 2.0, (Fault(kind, 0),)) for number, kind in enumerate(kinds, start=1)]


def report(faults: FaultResults, *planned: FaultKind, pauses: Sequence[AckPause] = (), **wrong: Any) -> ChaosReport:
    return make_report(7, plan(*planned), faults, pauses, {**RIGHT, **wrong})


def shown(made: ChaosReport) -> str:
    text = StringIO()
    show_report(made, Console(file=text, width=200))
    return text.getvalue()


def test_figure_of_a_fault_is_its_longest_pause() -> None:
    """Of steady publishers. Pauses that ended before the fault or began after the recovery do not count."""
    pauses = [
        AckPause("steady-1", 9_000.0, 99.0),
        AckPause("steady-1", 400.0, 101.0),
        AckPause("steady-2", 700.0, 102.0),
        AckPause("steady-2", 800.0, 99.9),
        AckPause("named-1", 2_000.0, 103.0),
        AckPause("http-1", 3_000.0, 104.0),
        AckPause("steady-2", 8_000.0, 120.0),
    ]
    assert gap_ms(hit(FaultKind.OWNER_KILL, 100.0, 110.0), pauses) == 700.0
    assert gap_ms(hit(FaultKind.OWNER_KILL, 100.0, None), pauses) == 8_000.0, "the cluster never was healthy again"
    assert gap_ms(hit(FaultKind.OWNER_KILL, 300.0, 310.0), pauses) is None


def test_publishers_over_http_count_for_redis_only() -> None:
    """No other client needs Redis, and at other faults these publishers wait longer than others."""
    pauses = [AckPause("steady-1", 500.0, 101.0), AckPause("http-1", 3_000.0, 104.0)]
    assert gap_ms(hit(FaultKind.REDIS_KILL, 100.0, 110.0), pauses) == 3_000.0
    assert gap_ms(hit(FaultKind.METADATA_KILL, 100.0, 110.0), pauses) == 500.0


def test_timeline_shows_the_longest_pause_of_each_client() -> None:
    """Short pauses are the rate of the workload."""
    pauses = [AckPause("named-1", ms, 101.0) for ms in (300.0, 900.0, 400.0)]
    pauses += [AckPause("http-1", 260.0, 101.0), AckPause("automatic-1", 240.0, 101.0)]
    one = hit(FaultKind.OWNER_KILL, 100.0, 110.0)
    assert pauses_text(one, pauses) == "http-1 260 ms, named-1 900 ms"
    assert pauses_text(one, pauses[-1:]) == "none above 250 ms"


def test_figures_of_a_kind_are_those_of_its_hits() -> None:
    """Median and maximum. A planned kind without an injected fault has a row, too."""
    at = {100.0: 500.0, 200.0: 200.0, 300.0: 300.0}
    pauses = [AckPause("steady-1", ms, at_s + 1) for at_s, ms in at.items()]
    pauses += [AckPause(client, ms, 201.0) for client, ms in (("named-1", 800.0), ("automatic-1", 600.0))]
    pauses += [AckPause("named-1", 100.0, 301.0)]
    faults = FaultResults(hits=[hit(FaultKind.OWNER_KILL, at_s, at_s + 10) for at_s in at])
    made = report(faults, *[FaultKind.OWNER_KILL] * 4, FaultKind.STORAGE_KILL, pauses=pauses)
    names = ("kind", "count", "planned", "client_gap_ms_p50", "client_gap_ms_max", "opening_gap_ms_max")
    shown_json: Any = made.to_json()["faults"]
    assert [tuple(kind[name] for name in names) for kind in shown_json] == [
        ("owner-kill", 3, 4, 300.0, 500.0, 800.0),
        ("storage-kill", 0, 1, None, None, None),
    ]


def test_share_of_long_pauses_counts_each_pause_once() -> None:
    """Of steady publishers, around the faults of one kind."""
    faults = FaultResults(hits=[hit(FaultKind.METADATA_KILL, 100.0, 110.0), hit(FaultKind.METADATA_KILL, 105.0, 115.0)])
    faults.hits.append(hit(FaultKind.REDIS_KILL, 100.0, 110.0))
    pauses = [AckPause("steady-1", ms, 101.0 + number) for number, ms in enumerate((100.0, 151.0, 100.0, 150.0))]
    pauses += [
        AckPause("steady-2", 900.0, 107.0),
        AckPause("steady-2", 100.0, 112.0),
        AckPause("named-1", 900.0, 107.0),
    ]
    pauses += [AckPause("steady-1", 900.0, 99.0), AckPause("steady-1", 900.0, 130.0), AckPause("http-1", 900.0, 101.0)]
    planned = plan(FaultKind.METADATA_KILL, FaultKind.REDIS_KILL)
    made = make_report(7, planned, faults, pauses, RIGHT, 150.0)
    shown_json: Any = made.to_json()["faults"]
    assert [kind["above_quiet"] for kind in shown_json] == [round(2 / 6, 4), None]
    assert "33.3%" in shown(made)
    assert "%" not in shown(make_report(7, planned, faults, pauses, RIGHT, None)), "without a quiet time"


def test_report_has_the_time_until_all_copies_were_back() -> None:
    """And how long the fault had to wait, for the kinds that destroy copies alone."""
    injected = InjectedFault(Fault(FaultKind.STORAGE_LOSS, 0), "storage-1", 100.0, {WAITED_S: "0.5"})
    faults = FaultResults(hits=[FaultHit(1, injected, 130.0, 112.34), hit(FaultKind.OWNER_KILL, 200.0, 210.0)])
    made = report(faults, FaultKind.OWNER_KILL, FaultKind.STORAGE_LOSS)
    shown_json: Any = made.to_json()["faults"]
    assert [(kind["kind"], kind["repair_s"], kind["waited_s"]) for kind in shown_json] == [
        ("owner-kill", [], []),
        ("storage-loss", [12.3], [0.5]),
    ]
    assert "storage-loss: all copies were there again after 12.3 s" in shown(made)


def test_correct_log_passes() -> None:
    """The control for the next test."""
    made = report(FaultResults(hits=[hit(FaultKind.OWNER_KILL, 1.0, 2.0)]), FaultKind.OWNER_KILL)
    outcome = made.to_json()
    assert (outcome["ok"], outcome["missed"], outcome["unhealthy"]) == (True, [], None)
    assert "passed" in shown(made)


@pytest.mark.parametrize(
    ("faults", "wrong", "said"),
    [
        (
            FaultResults(),
            {"lost": 1, "violations": ["a 7 was acknowledged and is not in the log"]},
            "a 7 was acknowledged",
        ),
        (
            FaultResults(misses=[FaultMiss(3, Fault(FaultKind.OWNER_KILL, 0), "no target")]),
            {},
            "step 3, owner-kill: no target",
        ),
        (FaultResults(unhealthy="step 2: not healthy"), {}, "step 2: not healthy"),
        (FaultResults(), {"acked": 0}, "0 acked"),
    ],
)
def test_each_problem_fails_the_run_and_is_shown(faults: FaultResults, wrong: dict[str, Any], said: str) -> None:
    """In the table and in JSON: a lost message, a missed fault, an unhealthy cluster, a run without messages."""
    made = report(faults, FaultKind.OWNER_KILL, **wrong)
    outcome = made.to_json()
    assert outcome["ok"] is False
    assert "FAILED" in shown(made)
    assert said in shown(made)
    assert outcome["missed"] == [f"step {miss.step}, {miss.fault.kind}: {miss.reason}" for miss in faults.misses]
    assert outcome["unhealthy"] == faults.unhealthy
    assert outcome["violations"] == wrong.get("violations", [])
