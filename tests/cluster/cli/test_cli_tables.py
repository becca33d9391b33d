"""Tables of 80 columns: no value is split, and times, sizes and names are readable."""

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from oncelog.cli.admin.readable import ago, moment, short_address, size
from oncelog.cli.admin.tables import lines_of
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.table import print_table
from oncelog_lab.chaos.report import ChaosReport, KindFigures, show_schedule
from oncelog_lab.chaos.report import show_report as show_faults
from oncelog_lab.chaos.schedule import make_schedule
from oncelog_lab.demo.report import DemoConsumption, DemoReport, DemoTakeover, show_demo
from oncelog_lab.faults.kinds import Component, FaultKind
from oncelog_lab.verdict import LogVerdict
from oncelog_spark.cli.audit_table import show_report

WIDTH = 80
NOW_MS = 1_772_366_400_000
NODES = [f"{letter}1b2" + "0123456789abcdef" * 2 for letter in "0123"]
NODES = [node[:32] for node in NODES]
HOST = "oncelog-storage-{}.oncelog-storage.logs.svc.cluster.local:6651"
STORAGE: list[object] = [
    {
        "incarnation": node,
        "address": HOST.format(number),
        "live": number < 3,
        "retired": number == 3,
        "free_bytes": 21_474_836_480 if number < 3 else None,
        "read_only": number == 1,
        "read_only_set": number == 1,
    }
    for number, node in enumerate(NODES)
]
BROKERS: list[object] = [
    {
        "incarnation": node,
        "address": "10.42.0.117:6652",
        "since_ms": NOW_MS - 3 * 3_600_000,
        "state": "live",
        "connected": True,
    }
    for node in NODES[:2]
]
TAKEOVERS = [
    {
        "owner_epoch": epoch,
        "began_ms": NOW_MS - 90_000,
        "ms": 152.31,
        "replayed_entries": 1_000,
        "phases_ms": {"acquire": 1.2, "recover": 33.4, "load_snapshot": 40.1, "replay": 90.2, "open": 152.3},
    }
    for epoch in range(1, 4)
]
STATS: dict[str, object] = {
    "topic": "public/default/flights",
    "topic_id": "f" * 32,
    "phase": "serving",
    "owner": NODES[0],
    "owner_epoch": 3,
    "takeovers": TAKEOVERS,
    "deduplication_enabled": True,
    "messages_by_verdict": {"duplicate": 12, "new": 336_777},
    "waiting": "for its ledger 7: two of its three copies are damaged on a1b2c3d4 and b1b2c3d4",
}
#: As of `topics list --state`; null fields are left out.
STUCK: dict[str, object] = {
    "topics": [
        {
            "topic": "public/default/flights", "owner": NODES[0], "states": ["held", "backlog"], "waiting_for": None,
            "since_ms": NOW_MS - 3_600_000, "held_since_ms": NOW_MS - 3_600_000, "held_by": "billing",
            "blocked_subscriptions": 0, "backlog_messages": 12_345, "oldest_unacked_ms": NOW_MS - 86_400_000,
        },
        {
            "topic": "public/default/orders", "owner": NODES[1], "states": ["waiting"], "since_ms": NOW_MS - 60_000,
            "waiting_for": "ledger_unavailable", "backlog_messages": None,
        },
    ],
    "total": 2,
    "next_after": None,
    "silent_owners": [{"incarnation": NODES[2], "address": "10.42.0.117:6652", "reason": "connection refused"}],
}  # fmt: skip
INTERNAL: dict[str, object] = {
    "owner": NODES[0],
    "ledgers": [{"ledger_id": 7, "base_index": 0}, {"ledger_id": 12, "base_index": 50_000}],
    "cache": {"bytes": 67_108_864, "hits": 5, "misses": 1},
    "open_ledger": {"ledger_id": 12, "bytes": 123_456, "members": NODES[:3]},
    "snapshot": {"number": 3, "taken_ms": NOW_MS - 5_000, "ledgers": [{"ledger_id": 9, "base": "7:120"}]},
    "producers": [
        {
            "name": "importer-of-the-northern-warehouse",
            "producer_id": 5,
            "generation": 2,
            "mode": "monotonic",
            "accepted": 21_474_836_480,
            "persisted": 21_474_836_480,
            "recent_batches_count": 64,
            "recent_floor": 21_474_000_000,
            "last_activity_ms": NOW_MS - 12_000,
            "idle_ms": 12_000,
            "expires_ms": 604_800_000,
            "connected": True,
            "connected_from": "10.42.0.117:51234",
        }
    ],
}
COPIES: list[object] = [
    {
        "incarnation": node,
        "address": HOST.format(number),
        "state": ("live", "draining", "away", "retired")[number],
        "read_only": number == 1,
        "replaced_by": NODES[0] if number == 3 else None,
        "ledgers": 12_345,
        "debt": 1_234 if number == 3 else 0,
        "damaged_ledgers": 0 if number < 2 else None,
        "erased_ledgers": 5 if number < 2 else None,
        "stored_bytes": 21_474_836_480 if number < 2 else None,
        "dead_bytes": 0 if number < 2 else None,
        "free_bytes": 21_474_836_480 if number < 2 else None,
        "verified_ms": NOW_MS - 3 * 86_400_000 if number < 2 else None,
    }
    for number, node in enumerate(NODES)
]
LEDGERS: list[object] = [
    {
        "ledger_id": 1_234_567,
        "topic": "public/default/flights",
        "state": "closed",
        "health": "under-replicated",
        "copies": 2,
        "write_quorum": 3,
        "entries": 50_000,
    }
]
ANSWERS: dict[str, Any] = {
    "storage nodes": COPIES,
    "storage ledgers": LEDGERS,
    "topics stats": STATS,
    "topics stats --internal": INTERNAL,
    "cluster show": {"cluster_id": "c" * 32, "brokers": BROKERS, "storage_nodes": STORAGE},
    "storage nodes NODE": STORAGE[0],
    "topics list --state": STUCK,
    "topics list": ["public/default/flights", "public/default/orders"],
}


def words_of(answer: object) -> set[str]:
    """Every string and number of a response."""
    if isinstance(answer, dict):
        return {word for value in answer.values() for word in words_of(value)}
    if isinstance(answer, list):
        return {word for value in answer for word in words_of(value)}
    return set() if answer is None or isinstance(answer, bool) else set(str(answer).split())


@pytest.mark.parametrize("name", ANSWERS)
def test_table_fits_80_columns(name: str) -> None:
    """Whatever names Kubernetes gives its pods."""
    lines = lines_of(ANSWERS[name], width=WIDTH, wide=False, now_ms=NOW_MS)
    assert [line for line in lines if len(line) > WIDTH] == []
    assert not re.search(r"\d{13}", "\n".join(lines).replace("21474", "")), "a time since 1970"


@pytest.mark.parametrize("name", ANSWERS)
def test_wide_shows_complete_ids_and_addresses(name: str) -> None:
    """Each on one line, without truncation."""
    lines = lines_of(ANSWERS[name], width=WIDTH, wide=True, now_ms=NOW_MS)
    shown = {word.strip(",") for line in lines for word in line.split()}
    missing = words_of(ANSWERS[name]) - shown
    assert {word for word in missing if not re.fullmatch(r"\d{13}", word)} == set()


def test_tables_have_the_useful_columns() -> None:
    """Short names, ages and free space."""
    assert lines_of(STORAGE, width=WIDTH, wide=False, now_ms=NOW_MS) == [
        "node      address                 state                      free",
        "01b20123  oncelog-storage-0:6651  live                   20.0 GiB",
        "11b20123  oncelog-storage-1:6651  live, read-only (set)  20.0 GiB",
        "21b20123  oncelog-storage-2:6651  live                   20.0 GiB",
        "31b20123  oncelog-storage-3:6651  retired                       -",
    ]
    assert lines_of(BROKERS, width=WIDTH, wide=False, now_ms=NOW_MS) == [
        "owner     address           state    since  connected",
        "01b20123  10.42.0.117:6652  live   3 h ago  yes",
        "11b20123  10.42.0.117:6652  live   3 h ago  yes",
    ]


def test_tables_of_storage_have_the_useful_columns() -> None:
    """State, debt and damage of nodes; health and copies of ledgers."""
    assert lines_of(COPIES[2:], width=WIDTH, wide=False, now_ms=NOW_MS) == [
        "node      address                 state    ledgers  debt  damaged  verified",
        "21b20123  oncelog-storage-2:6651  away       12345     0        -         -",
        "31b20123  oncelog-storage-3:6651  retired    12345  1234        -         -",
    ]
    assert lines_of(LEDGERS, width=WIDTH, wide=False, now_ms=NOW_MS) == [
        " ledger  topic                   state   health            copies  entries",
        "1234567  public/default/flights  closed  under-replicated  2 of 3    50000",
    ]


def test_table_of_stuck_topics_shows_the_cause() -> None:
    """And the owners whose topics are missing."""
    assert lines_of(STUCK, width=WIDTH, wide=False, now_ms=NOW_MS) == [
        "total       2",
        "next_after  -",
        "",
        "topics:",
        "topic                   why                     since  backlog   oldest",
        "public/default/flights  held by billing       1 h ago    12345  1 d ago",
        "public/default/orders   ledger_unavailable  1 min ago        -        -",
        "",
        "silent_owners:",
        "incarnation  address           reason",
        "21b20123     10.42.0.117:6652  connection refused",
    ]


def test_short_ids_are_as_long_as_necessary() -> None:
    """Two nodes whose names begin alike still have different short ids."""
    alike: list[object] = [
        {"incarnation": "a" * 12 + letter * 20, "retired": False, "address": "h:1"} for letter in "bc"
    ]
    lines = lines_of(alike, width=WIDTH, wide=False, now_ms=NOW_MS)
    assert [line.split()[0] for line in lines[1:]] == ["a" * 12 + "b", "a" * 12 + "c"]


def test_table_that_is_too_wide_is_shown_as_blocks() -> None:
    """A producer's name may have 255 characters: it exceeds the line, and is not broken."""
    name = "importer/" + "x" * 100
    lines = lines_of([{"name": name, "producer_id": 7, "persisted": 9}], width=WIDTH, wide=False, now_ms=NOW_MS)
    assert f"name       {name}" in lines
    assert "persisted  9" in lines
    assert not any(name in line for line in lines if len(line) <= len(name))


def test_long_value_continues_on_the_next_line() -> None:
    """Words are not broken."""
    lines = lines_of(STATS, width=WIDTH, wide=False, now_ms=NOW_MS)
    at = next(number for number, line in enumerate(lines) if line.startswith("waiting"))
    assert lines[at + 1].startswith(" " * 20)
    assert " ".join(" ".join(lines[at : at + 3]).split()).startswith(f"waiting {STATS['waiting']}")


def test_sizes_and_times_are_formatted_for_people() -> None:
    """Sizes are rounded down to a readable unit. Times in the distant past or in the future are dates."""
    sizes = [size(number) for number in (0, 1023, 1536, 20 * 2**30, 5 * 2**50)]
    assert sizes == ["0 B", "1023 B", "1.5 KiB", "20.0 GiB", "5.0 PiB"]
    told = [ago(NOW_MS - ms, NOW_MS) for ms in (0, 59_999, 60_000, 7_200_000, 86_400_000 * 3, 86_400_000 * 40, -9_000)]
    assert told == ["0 s ago", "60 s ago", "1 min ago", "2 h ago", "3 d ago", "2026-01-20", "2026-03-01"]
    assert moment(NOW_MS) == "2026-03-01 12:00:00 UTC"
    assert moment(2**63).startswith("9999-12-31")
    for address, short in (
        ("10.0.0.1:66", "10.0.0.1:66"),
        ("a.b.c:66", "a:66"),
        ("[::1]:66", "[::1]:66"),
        ("1.5", "1.5"),
    ):
        assert short_address(address) == short


# --- the other tables of the command line -----------------------------------------------------------------------------


def rendered(show: Any, *told: Any) -> str:
    out = StringIO()
    show(*told, Console(file=out, width=WIDTH, color_system=None))
    return out.getvalue()


def assert_whole(text: str, *words: str) -> None:
    """No line is too long, and no word is split."""
    lines = text.splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []
    assert [word for word in words if not any(word in line for line in lines)] == []


def test_faults_fit_80_columns() -> None:
    """Kinds have the names that --kinds takes: `--kinds storage-node-kill`."""
    figures = tuple(KindFigures(kind, 12, (1.0, 12_345.6), 11, 23_456.7, 0.123) for kind in FaultKind)
    verdict = LogVerdict(1, 1, 1, 1, 1, 1, 1, 1).to_json()
    report = ChaosReport(7, verdict, figures, (), None, 12.3)
    assert_whole(rendered(show_faults, report).partition("without a fault")[0], *(str(kind) for kind in FaultKind))


def test_planned_faults_fit_80_columns() -> None:
    """The plan of a long run."""
    steps = make_schedule(7, seconds=1_200, kinds=list(FaultKind), counts=dict.fromkeys(Component, 5))
    kinds = {str(fault.kind) for step in steps for fault in step.faults}
    assert_whole(rendered(show_schedule, steps), *kinds)


def test_bench_fits_80_columns() -> None:
    """A figure is not split over lines."""
    row = BenchRow(
        "publish 100-byte messages, acknowledged on two of three",
        1_234_567.0,
        "messages/s",
        1_400_000.0,
        note="a note of some words",
    )
    assert_whole(rendered(print_table, [row]), "1,234,567 messages/s", "0.88", "acknowledged")


def test_demo_fits_80_columns() -> None:
    """Three takeovers would do."""
    verdict = LogVerdict(336_777, 336_777)
    takeovers = [DemoTakeover(152.3, 1_000, 1_234.5)] * 7
    consumed = DemoConsumption(345_678, 8_901, 336_777, 0, 0)
    assert_whole(
        rendered(show_demo, DemoReport(336_777, verdict, 1_000, takeovers, consumed)), "345,678", "152.3", "1,000"
    )


def test_audit_fits_80_columns() -> None:
    """Checks and positions are not split over lines."""
    topic = {
        "topic": "public/default/flights", "verdict": "violations", "end": {"position": "123456:789", "next_index": 9},
        "checks": [
            {"check": "base_index", "state": "incomplete", "violations": 12,
             "compared_with": "number 12, as of 1234567:8901: 12 of 12 producers equal, 64 remembered batches in place"}
        ],
        "messages": 9, "entries": 9, "ledgers": 1, "bytes": 9, "ranges": 1,
        "duplicates_refused": {"in_log": 0, "reported_by_owner": {}, "owner_epoch": 1}, "takeovers": [],
        "violations": [], "violations_count": 0, "not_checked": [], "notes": [],
    }  # fmt: skip
    report = {"topics": [topic], "verdict": "violations", "seconds": 1.0}
    assert_whole(rendered(show_report, report), "base_index", "incomplete", "1234567:8901", "remembered")
