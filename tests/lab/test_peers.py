"""The comparison with Kafka and Pulsar: which runs count, what the tools print, what the servers are given, the report.

The peers themselves are not installed here: small programs stand in for them (`peer_fakes`).
"""

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog_lab.bench.commands import app
from oncelog_lab.failures import LabFailed
from oncelog_lab.peer_bench import comparison, kafka, pulsar
from oncelog_lab.peer_bench.comparison import Cell, System, rows_of, systems_of
from oncelog_lab.peer_bench.kafka import broker_properties
from oncelog_lab.peer_bench.loads import (
    MEASURED_RUNS,
    SHAPES,
    WARM_UP_RUNS_MAX,
    Measured,
    PeerLoad,
    Run,
    measured_of,
    medians,
    parse_line,
    python_program,
    run_line,
)
from oncelog_lab.peer_bench.peer_client import Answered, LoadFailed, run_load
from oncelog_lab.peer_bench.pulsar import (
    bookie_settings,
    broker_settings,
    changed,
    zookeeper_settings,
)
from tests.lab import peer_fakes as fakes


def runs(*figures: float) -> list[Run]:
    return [(figure,) for figure in figures]


def test_runs_count_after_three_that_differ_by_less_than_5_percent() -> None:
    """104.9 is within 5 % of 100, and 105 is not."""
    assert measured_of(runs(50, 100, 102, 104.9, 7, 8)) is None
    found = measured_of(runs(50, 100, 102, 104.9, 7, 8, 9, 1000))
    assert found == Measured(tuple(runs(50, 100, 102, 104.9)), tuple(runs(7, 8, 9)), True)
    assert medians(found.runs) == (8,)
    unsteady = measured_of(runs(100, 102, 105, 1, 1, 1))
    assert unsteady is None


def test_client_that_never_becomes_steady_is_measured_and_marked() -> None:
    """Every loop has a limit."""
    restless = runs(*(2.0**number for number in range(WARM_UP_RUNS_MAX + MEASURED_RUNS)))
    assert measured_of(restless[:-1]) is None
    found = measured_of(restless)
    assert found is not None
    assert (len(found.warm_up), found.steady) == (WARM_UP_RUNS_MAX, False)
    assert measured_of(restless[:6], 4) is None
    sooner = measured_of(restless[:7], 4)
    assert sooner is not None
    assert (len(sooner.warm_up), sooner.steady) == (4, False)


RUN_LINE = python_program("oncelog", (), PeerLoad.LATENCY, 1.0).line
PATTERNS = (kafka.PRODUCED, kafka.CONSUMED, pulsar.PRODUCED, pulsar.LATENCIES, pulsar.READ, RUN_LINE)


def test_lines_of_the_tools_are_figures() -> None:
    """Lines as the tools print them, and as the clients of this package do."""
    assert parse_line(kafka.PRODUCED, fakes.KAFKA_PRODUCED) == (240.2,)
    assert parse_line(kafka.CONSUMED, fakes.KAFKA_CONSUMED) == (502765.2087,)
    assert parse_line(pulsar.PRODUCED, fakes.PULSAR_PRODUCED) == (200.3,)
    assert parse_line(pulsar.LATENCIES, fakes.PULSAR_PRODUCED) == (3.105, 6.512)
    assert parse_line(pulsar.READ, fakes.PULSAR_READ) == (310204.118,)
    assert parse_line(RUN_LINE, run_line((1.5, 2.0))) == (1.5, 2.0)
    assert parse_line(RUN_LINE, run_line((1500000.0,))) == (1500000.0,)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "17",
        '{"other": 1}',
        "WARNING: Exiting before consuming the expected number of records: timeout (60000 ms) exceeded.",
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, a.ms, b.ms, c.MB, d.s",
        "Aggregated throughput stats --- 2003 records sent --- 200.3 msg/s --- 0.2 Mbit/s",
    ],
)
def test_other_lines_are_no_figures(line: str) -> None:
    """Warnings, headers and sums of other kinds."""
    assert [parse_line(pattern, line) for pattern in PATTERNS] == [None] * 6


def test_kafka_has_three_copies_and_syncs_each_append(tmp_path: Path) -> None:
    """Each broker knows all controllers, listens on the loopback interface only, and has ports of its own."""
    texts = [broker_properties(node, [9001, 9002, 9003, 9004, 9005, 9006], tmp_path) for node in (1, 2, 3)]
    for text in texts:
        assert "controller.quorum.voters=1@127.0.0.1:9002,2@127.0.0.1:9004,3@127.0.0.1:9006\n" in text
        assert "default.replication.factor=3\n" in text
        assert "min.insync.replicas=2\n" in text
        assert "log.flush.interval.messages=1\n" in text
    assert "listeners=PLAINTEXT://127.0.0.1:9003,CONTROLLER://127.0.0.1:9004\n" in texts[1]


def test_configuration_keeps_what_is_not_changed() -> None:
    """A comment with the key is not the key."""
    file = "# port=1\nport=6650\nother = x\nempty=\n"
    assert changed(file, {"port": 7, "other": "y", "new": "z"}) == "# port=1\nport=7\nother=y\nempty=\nnew=z\n"


def test_pulsar_has_three_copies_with_deduplication_on_loopback(tmp_path: Path) -> None:
    """The ports that other servers may use, 8000 and 9990, are closed."""
    broker = broker_settings(1, 2, 3)
    copies = {broker[f"managedLedgerDefault{name}"] for name in ("EnsembleSize", "WriteQuorum")}
    assert (copies, broker["managedLedgerDefaultAckQuorum"]) == ({3}, 2)
    assert broker["brokerDeduplicationEnabled"] == "true"
    assert broker["metadataStoreUrl"] == "zk:127.0.0.1:3"
    bookie = bookie_settings(4, 3, tmp_path)
    assert (bookie["journalSyncData"], bookie["prometheusStatsHttpEnable"]) == ("true", "false")
    assert bookie["listeningInterface"] == "lo"
    assert zookeeper_settings(3, tmp_path)["admin.enableServer"] == "false"


def test_tools_send_as_the_python_clients_do(tmp_path: Path) -> None:
    """The same sizes, topics and rates, and idempotent."""
    java = tmp_path / "java"
    python, tool = kafka.programs(tmp_path, java, 2.0, tmp_path, "127.0.0.1:1", PeerLoad.LISTS_1K)
    assert python.command[-4:] == ("127.0.0.1:1", "lists-1k", "2.0", "0")
    words = " ".join(tool.command)
    assert "--topic lists-1k" in words
    assert "--record-size 1024" in words
    assert "acks=all enable.idempotence=true" in words
    assert len(kafka.programs(tmp_path, java, 2.0, tmp_path, "127.0.0.1:1", PeerLoad.LATENCY)) == 1
    lone = pulsar.programs(tmp_path, java, 2.0, tmp_path, "pulsar://127.0.0.1:1", PeerLoad.LATENCY)[1]
    words = "produce latency --rate 200 --size 100 --disable-batching --service-url pulsar://127.0.0.1:1"
    assert " ".join(lone.command[1:]) == words


def test_clients_of_pulsar_read_a_fifth(tmp_path: Path) -> None:
    """Its Python client fills the topic slowly. The tool ends only if there are as many messages as it reads."""
    found = pulsar.programs(tmp_path, tmp_path / "java", 2.0, tmp_path, "pulsar://127.0.0.1:1", PeerLoad.READ_OBJECTS)
    assert [each.command[-1] for each in found[:1]] == ["200000"]
    assert "--num-messages 200000 " in " ".join(found[1].command)


class FakeClient:
    """Answers a message in `serve`. lost: messages whose outcome is an error. stored: messages to read."""

    ok = "ok"

    def __init__(self, lost: int = 0, stored: int = 0) -> None:
        self.lost = lost
        self.stored = stored
        self.topics: list[str] = []
        self.lists: list[int] = []
        self._waiting: deque[Answered] = deque()

    def open_topic(self, topic: str) -> None:
        self.topics.append(topic)

    def send(self, value: bytes, answered: Answered) -> None:
        assert len(value) == SHAPES[PeerLoad.CALLBACKS].message_bytes
        self._waiting.append(answered)

    def send_list(self, values: Sequence[bytes]) -> None:
        self.lists.append(len(values))

    def serve(self, _seconds: float) -> None:
        while self._waiting:
            outcome = "lost" if self.lost else self.ok
            self.lost -= bool(self.lost)
            self._waiting.popleft()(outcome, None)

    def flush(self) -> None:
        self.serve(0)

    def read_batches(self, _topic: str, messages: int) -> int:
        return min(self.stored, messages)

    read_objects = read_batches


@pytest.mark.parametrize("load", [load for load in PeerLoad if not SHAPES[load].messages])
def test_client_publishes_again_and_again(load: PeerLoad) -> None:
    """To one topic."""
    client = FakeClient()
    found = run_load(client, load, 0.01, 0)
    assert all(figure > 0 for figure in (*next(found), *next(found)))
    assert client.topics == [load]


@pytest.mark.parametrize("load", [PeerLoad.CALLBACKS, PeerLoad.FUTURES, PeerLoad.LATENCY])
def test_message_that_is_not_stored_ends_the_client(load: PeerLoad) -> None:
    """A figure counts stored messages only."""
    with pytest.raises(LoadFailed):
        next(run_load(FakeClient(lost=1), load, 0.01, 0))


@pytest.mark.parametrize(
    ("load", "topics"),
    [
        (PeerLoad.READ_1K, ["read-1k-0", "read-1k-1"]),
        (PeerLoad.READ_BATCHES, ["read-batches"]),
        (PeerLoad.READ_OBJECTS, ["read-objects"]),
    ],
)
def test_client_reads_what_it_has_written(load: PeerLoad, topics: list[str]) -> None:
    """1 KiB messages are written before each run, the others once. Exactly so many are written."""
    client = FakeClient(stored=50_000)
    found = run_load(client, load, 0.01, 50_000)
    assert all(figure > 0 for figure in (*next(found), *next(found)))
    assert client.topics == topics
    assert sum(client.lists) == 50_000 * len(topics)


def test_topic_that_lacks_messages_ends_the_client() -> None:
    """Otherwise it would wait for ever, or count less."""
    with pytest.raises(LoadFailed, match=r"has 100 messages, but 90 could be read"):
        next(run_load(FakeClient(stored=90), PeerLoad.READ_OBJECTS, 0.01, 100))


SYSTEMS = [System(name, "4.4", "three copies", lambda _: None, lambda *_: []) for name in ("Oncelog", "Kafka")]  # type: ignore[arg-type,return-value]


def measured(*figures: float, steady: bool = True) -> Measured:
    return Measured((), tuple(runs(*figures)), steady)


def cells(*orders: tuple[Measured, Measured]) -> list[Cell]:
    """Of Oncelog and Kafka, in one order after the other."""
    names = (("Oncelog", "oncelog"), ("Kafka", "kafka-producer-perf-test"))
    return [
        Cell(PeerLoad.CALLBACKS, *name, found) for order in orders for name, found in zip(names, order, strict=True)
    ]


def test_figure_is_the_median_of_both_orders_as_a_ratio_to_ours() -> None:
    """A client that was not steady, or has two medians, is noted."""
    first = (measured(1000, 1010, 1020), measured(500, 500, 500))
    ours, other = rows_of(cells(first, (measured(1030, 1040, 1049), measured(500, 525, 525))), SYSTEMS)
    assert (ours.figure, ours.ratio, ours.note) == (1025, 1, "")
    assert (other.figure, other.note) == (500, "not steady, or the orders differ")
    restless, steady = rows_of(cells((measured(1, 1, 1, steady=False), measured(1, 1, 1))), SYSTEMS)
    assert (bool(restless.note), bool(steady.note)) == (True, False)


def test_rows_name_versions_settings_and_clients() -> None:
    """A latency has two rows."""
    rows = rows_of(cells((measured(580_000, 580_000, 580_000), measured(200, 200, 300))), SYSTEMS)
    assert rows[1].what == "publish 100 B, a callback for each message: Kafka 4.4, kafka-producer-perf-test"
    shown = json.loads(json.dumps(rows[1].to_json()))["detail"]
    assert (shown["client"], shown["settings"]) == ("kafka-producer-perf-test 4.4", "three copies")
    assert shown["orders"] == [{"runs": [[200], [200], [300]], "warm_up": [], "steady": True}]
    found = Measured((), ((1.5, 4.0), (1.6, 5.0), (1.7, 6.0)), True)
    both = rows_of([Cell(PeerLoad.LATENCY, "Oncelog", "oncelog", found)], SYSTEMS)
    assert [(row.what.partition(":")[0][-3:], row.figure, row.unit) for row in both] == [
        ("p50", 1.6, "ms"), ("p99", 5.0, "ms")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("homes", "error"),
    [
        ({}, "name a system to compare with: --kafka DIR, --pulsar DIR or both"),
        (
            {"kafka": ""},
            r"--kafka .* has no libs/kafka_2.13-\*.jar, .*: name the directory of an unpacked distribution",
        ),
        ({"kafka": "3.9.1"}, "--kafka .* has version 3.9.1: name the directory of version 4 or later"),
        ({"kafka": "4.4.0"}, "confluent-kafka is not installed: pip install confluent-kafka"),
        (
            {"pulsar": ""},
            r"--pulsar .* has no lib/.*-broker-\*.jar, bin/pulsar-perf: name the directory of an unpacked",
        ),
        ({"pulsar": "3.3.9"}, "--pulsar .* has version 3.3.9: name the directory of version 4 or later"),
        ({"pulsar": "4.0.8"}, "pulsar-client is not installed: pip install pulsar-client"),
    ],
)
def test_what_is_missing_is_named_before_a_start(
    homes: dict[str, str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do."""
    monkeypatch.setenv("JAVA_HOME", str(fakes.java_home(tmp_path / "java")))
    # Whatever is installed here for other tests.
    monkeypatch.setattr(comparison, "installed_version", lambda _: None)
    makers = {"kafka": fakes.kafka_home, "pulsar": fakes.pulsar_home}
    places: dict[str, Any] = {"kafka": None, "pulsar": None}
    for name, version in homes.items():
        places[name] = makers[name](tmp_path / name, version) if version else tmp_path
    with pytest.raises(LabFailed, match=error):
        systems_of(places["kafka"], places["pulsar"], 1.0)


def test_old_java_is_refused(tmp_path: Path) -> None:
    """Kafka's own error is about the version of a class file."""
    java = fakes.java_home(tmp_path / "java", "11.0.2")
    words = ["peers", "--kafka", str(fakes.kafka_home(tmp_path / "kafka"))]
    done = CliRunner().invoke(app, words, env={"JAVA_HOME": str(java)})
    assert done.exit_code == 1
    assert "is Java 11, but the comparison needs Java 17 or later: set JAVA_HOME" in done.stderr
