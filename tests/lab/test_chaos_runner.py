"""The chaos run against a fake cluster: each planned fault strikes, is mended and heals, or the run fails."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.lab.chaos.report import Report
from oncelog.lab.chaos.report_lines import Pulse
from oncelog.lab.chaos.schedule import DEFAULT_KINDS, Kind, make_schedule
from oncelog.lab.chaos.session import RunSettings, Timeline, run_chaos
from oncelog.lab.chaos.target import ChaosFailed
from oncelog.lab.chaos.workload_link import Pause, WorkloadLink
from tests.lab.chaos_fakes import PERFECT, WHOLE, FakeCluster, starting

SEED = 4


async def chaos(
    cluster: FakeCluster,
    *,
    verdict: Mapping[str, Any] | None = PERFECT,
    kinds: tuple[Kind, ...] | None = None,
    heal_deadline_s: float = 20.0,
    seconds: float = 1.0,
    told: list[str] | None = None,
) -> Report:
    settings = RunSettings(SEED, seconds, kinds, pace=0.0, heal_deadline_s=heal_deadline_s)
    timeline = Timeline((told if told is not None else []).append)
    return await run_chaos(settings, cluster, starting(verdict), timeline)


@pytest.mark.asyncio
async def test_run_does_what_the_plan_says() -> None:
    """In its order, each mended once, and no step before the one before it has healed."""
    cluster, told = FakeCluster(), list[str]()
    report = await chaos(cluster, seconds=90.0, told=told)
    kinds = [kind for kind in DEFAULT_KINDS if kind is not Kind.VOLUME_FULL]
    steps = make_schedule(SEED, seconds=90.0, kinds=kinds, counts=WHOLE)
    assert [struck.fault for struck in cluster.struck] == [fault for step in steps for fault in step.faults]
    assert sorted(s.at_s for s in cluster.mended) == [s.at_s for s in cluster.struck]
    together = {tuple(fault.kind for fault in step.faults) for step in steps if len(step.faults) == 2}
    assert set(cluster.overlapping) <= together
    assert report.perfect
    text = "\n".join(told)
    for said in (
        "left out: volume-full: its volumes are too large",
        "left out: HTTP publishers",
        "recover 1 load_snapshot 2 replay 3",
    ):
        assert said in text


@pytest.mark.asyncio
async def test_report_gives_the_figures_of_each_kind() -> None:
    """As programs read them."""
    shown = (await chaos(FakeCluster(), seconds=40.0, kinds=(Kind.OWNER_KILL, Kind.STORAGE_KILL))).to_json()
    assert json.loads(json.dumps(shown)) == shown
    assert [shown[name] for name in ("ok", "acked", "lost", "duplicated", "out_of_order")] == [True, 10, 0, 0, 0]
    faults = shown["faults"]
    assert isinstance(faults, list)
    assert [fault["kind"] for fault in faults] == ["owner-kill", "storage-kill"]
    for fault in faults:
        assert fault["count"] == fault["planned"] > 0
        assert fault["client_gap_ms_p50"] == fault["client_gap_ms_max"] == 420.0
        assert fault["opening_gap_ms_max"] == 900.0
    assert shown["quiet_gap_ms_p999"] == 9.0


def test_pauses_of_clients_that_stay_open_have_a_percentile() -> None:
    """Of two thousand pauses the second longest; openings, and those of who comes and goes, do not count."""
    now_s = [0.0]
    pulse = Pulse(lambda: now_s[0])
    assert pulse.steady_gap_ms_p999 is None
    for name, pauses_s in (("steady-1", [9.0, *[0.02] * 1998, 0.3, 0.5]), ("named-1", [5.0])):
        pulse.begins(name)
        for pause_s in pauses_s:
            now_s[0] += pause_s
            pulse.acked(name)
    assert pulse.steady_gap_ms_p999 == pytest.approx(300.0)


def test_every_pause_is_told_once_with_its_end() -> None:
    """One from before a strike must not count for it, nor a longer one hide it."""
    now_s = [0.0]
    pulse = Pulse(lambda: now_s[0])
    pulse.begins("named-1")
    for at_s in (0.3, 0.4):
        now_s[0] = at_s
        pulse.acked("named-1")
    now_s[0] = 0.5
    assert pulse.take() == {"named-1": {"gaps_ms": [[300.0, 200.0], [100.0, 100.0]], "idle_ms": 100.0}}
    assert pulse.take() == {"named-1": {"gaps_ms": [], "idle_ms": 100.0}}


@pytest.mark.asyncio
async def test_planned_fault_that_never_struck_fails_the_run() -> None:
    """A run that met no faults proves nothing, however right the log is."""
    cluster = FakeCluster(misses=(Kind.STORAGE_KILL,))
    report = await chaos(cluster, seconds=40.0, kinds=(Kind.OWNER_KILL, Kind.STORAGE_KILL))
    assert not report.perfect
    assert "storage-kill: there is nothing to strike" in report.misses[0]
    assert [figures.count for figures in report.figures if figures.kind is Kind.STORAGE_KILL] == [0]


@pytest.mark.asyncio
async def test_what_cannot_be_mended_ends_the_striking_and_not_the_check() -> None:
    """It ended the run with a traceback, and nobody learnt what had become of the messages."""
    cluster = FakeCluster(never_mends=(Kind.OWNER_KILL,))
    report = await chaos(cluster, seconds=40.0, kinds=(Kind.OWNER_KILL,))
    assert len(cluster.struck) == 1
    assert report.unhealed is not None
    assert "was not mended: owner-kill of" in report.unhealed
    assert "the node does not start" in report.unhealed
    assert not report.perfect


@pytest.mark.asyncio
async def test_what_never_heals_ends_the_striking_and_not_the_check() -> None:
    """The verdict is wanted then more than ever; what was still planned counts as missed."""
    cluster = FakeCluster(never_heals=(Kind.OWNER_KILL,))
    report = await chaos(cluster, seconds=40.0, kinds=(Kind.OWNER_KILL,), heal_deadline_s=0.3)
    assert len(cluster.struck) == len(cluster.mended) == 1
    assert report.unhealed is not None
    assert "owner-kill" in report.unhealed
    assert report.misses
    assert not report.perfect
    assert report.verdict["acked"] == 10
    alone = await chaos(FakeCluster(never_heals=(Kind.OWNER_KILL,)), kinds=(Kind.OWNER_KILL,), heal_deadline_s=0.1)
    assert (alone.misses, alone.perfect) == ((), False)


@pytest.mark.asyncio
@pytest.mark.parametrize("rule", ["lost", "duplicated", "out_of_order", "ghosts", "holes", "disagreements"])
async def test_each_count_of_the_verdict_fails_the_run(rule: str) -> None:
    """One message is enough."""
    report = await chaos(FakeCluster(), kinds=(Kind.OWNER_KILL,), verdict={**PERFECT, rule: 1})
    assert not report.perfect


@pytest.mark.asyncio
async def test_run_without_acknowledgements_fails() -> None:
    """Nothing lost of nothing is no proof."""
    assert not (await chaos(FakeCluster(), kinds=(Kind.OWNER_KILL,), verdict={**PERFECT, "acked": 0})).perfect


@pytest.mark.asyncio
async def test_workload_that_ends_without_a_verdict_is_an_error() -> None:
    """It must never look like a verdict."""
    with pytest.raises(ChaosFailed, match="without a verdict"):
        await chaos(FakeCluster(), kinds=(Kind.OWNER_KILL,), verdict=None)


@pytest.mark.asyncio
async def test_kind_that_is_not_possible_is_refused_by_name() -> None:
    """Left out silently it would look as if it had been survived."""
    with pytest.raises(ChaosFailed, match="volume-full is not possible here: its volumes"):
        await chaos(FakeCluster(), kinds=(Kind.VOLUME_FULL,))


def line(event: str, at_s: float, **facts: object) -> str:
    return json.dumps({"event": event, "at_s": at_s, **facts})


def test_link_tells_all_times_in_one_clock() -> None:
    """The workload's clock is 100 s ahead, and its first line took long to arrive."""
    now_s = [50.0]
    heard: list[dict[str, Any]] = []
    link = WorkloadLink(heard.append, clock=lambda: now_s[0])
    link.take(line("ready", 148.0, topics=[], clients=[], left_out={}))
    now_s[0] = 51.0
    told = {"gaps_ms": [[300.0, 800.0], [250.0, 500.0]], "idle_ms": 500.0}
    clients = {"named-1": told, "named-2": {"gaps_ms": [], "idle_ms": 9000.0}}
    link.take(line("beat", 151.0, acked=3, steady_gap_ms_p999=None, clients=clients))
    assert link.pauses == [Pause("named-1", 300.0, 50.2), Pause("named-1", 250.0, 50.5)]
    assert link.beat.at_s == 51.0
    assert link.silent(50.2) == "no acknowledgement yet: named-2"
    assert link.silent(50.7) == "no acknowledgement yet: named-1, named-2"
    assert link.silent(51.0) == "no beat of the workload since"
    now_s[0] = 60.0  # held up on its way: what it tells of is not later for that
    link.take(line("beat", 152.0, acked=4, steady_gap_ms_p999=7.5, clients=clients))
    assert (link.beat.at_s, link.beat.steady_gap_ms_p999) == (52.0, 7.5)


def test_link_drops_what_a_repeated_stream_tells_again() -> None:
    """A log that is followed anew begins at its beginning; and what is no event is passed on."""
    heard: list[dict[str, Any]] = []
    link = WorkloadLink(heard.append)
    told = [line("takeover", 1.0 + n, topic="t", owner_epoch=n) for n in range(3)]
    for each in (*told, *told, "Traceback: a bug\n"):
        link.take(each)
    assert [said["event"] for said in heard] == ["takeover"] * 3 + ["said"]
    assert len(link.takeovers) == 3


def test_pause_counts_where_it_overlaps() -> None:
    """From 9.0 to 10.0."""
    pause = Pause("named-1", 1000.0, 10.0)
    assert [pause.overlaps(*span) for span in ((9.5, 9.6), (8.0, 9.1), (9.9, 12.0), (10.0, 12.0), (7.0, 9.0))] == [
        True, True, True, False, False,
    ]  # fmt: skip
