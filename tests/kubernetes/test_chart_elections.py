"""ZooKeeper's settings: the loss of a leader must not end the owners' sessions."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from oncelog.metadata_store.session.zookeeper import SESSION_TIMEOUT_MS
from tests.kubernetes.chart import TIMEOUT_S, environment, one

#: Number of attempts of a ZooKeeper server to connect to the elected leader.
CONNECT_TRIES = 5


def test_failed_election_ends_within_an_owner_session() -> None:
    """An elected leader without followers blocks the next election for initLimit ticks. After 20 s every topic would
    lose its owner."""
    config = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["zoo.cfg"]
    setting = {key: int(value) for key, value in re.findall(r"^(\w+)=(\d+)$", config, re.MULTILINE)}
    assert setting["tickTime"] * setting["initLimit"] < SESSION_TIMEOUT_MS


def test_followers_wait_long_enough_for_the_elected_leader() -> None:
    """With ZooKeeper's default of 100 ms, followers on a busy machine gave up before the leader's port was open."""
    start = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["start.sh"]
    (pause_ms,) = re.findall(r"-Dzookeeper\.leaderConnectDelayDuringRetryMs=(\d+)", start)
    assert CONNECT_TRIES * int(pause_ms) >= 2_000


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_servers_do_not_send_their_own_address_to_peers(tmp_path: Path, ordinal: int) -> None:
    """The name of a new pod may still resolve to the address of its predecessor. Peers that got this address never
    reached the server again: the server with the higher number connects to the address that the lower one sent."""
    told = started_with(tmp_path, f"oncelog-zookeeper-{ordinal}")
    servers = dict(re.findall(r"^server\.(\d+)=(\S+)$", told, re.MULTILINE))
    assert servers.pop(str(ordinal + 1)) == "0.0.0.0:2888:3888"
    suffix = "oncelog-zookeeper-headless:2888:3888"
    assert servers == {str(n + 1): f"oncelog-zookeeper-{n}.{suffix}" for n in range(3) if n != ordinal}
    given = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["zoo.cfg"]
    rest = [each for each in given.splitlines() if not each.startswith("server.")]
    assert [each for each in told.splitlines() if not each.startswith("server.")] == rest


def test_image_without_the_metrics_provider_starts_without_metrics(tmp_path: Path) -> None:
    """Otherwise ZooKeeper would not start."""
    assert "metricsProvider" not in started_with(tmp_path, "oncelog-zookeeper-0", provider=False)


def test_dns_queries_for_servers_are_limited() -> None:
    """A client that loses its server resolves all servers, and peers resolve one that is absent: a thousand DNS
    queries in three seconds, in addition to those of an election. A namespace in the name costs two more search
    domains."""
    for name in ("oncelog-owner", "oncelog-storage"):
        [container] = one("default", "StatefulSet", name)["spec"]["template"]["spec"]["containers"]
        assert environment(container)["ONCELOG_ZOOKEEPER_HOSTS"].split(",") == [
            f"oncelog-zookeeper-{n}.oncelog-zookeeper-headless:2281" for n in range(3)
        ]
    java = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["java.security"]
    kept_s = {key: int(value) for key, value in re.findall(r"^networkaddress\.cache\.(\S+)=(\S+)$", java, re.MULTILINE)}
    assert 1 <= kept_s["negative.ttl"] <= 2, "nor so long that one started anew is looked for in vain"
    assert 1 <= kept_s["ttl"] <= 2


def started_with(folder: Path, hostname: str, *, provider: bool = True) -> str:
    """The configuration that the chart's own script gives to Java, whose place a program takes that prints it."""
    data = one("default", "ConfigMap", "oncelog-zookeeper")["data"]
    places = {"/etc/oncelog-zookeeper": "config", "/data": "data", "/usr/share/java": "jars", "/tmp": "tmp"}
    for name in (*places.values(), "bin"):
        (folder / name).mkdir()
    (folder / "jars/zookeeper-3.jar").touch()
    if provider:
        (folder / "jars/zookeeper-prometheus-metrics-3.jar").touch()
    (folder / "config/zoo.cfg").write_text(data["zoo.cfg"])
    java = folder / "bin/java"
    java.write_text('#!/bin/bash\nexec cat "${@: -1}"\n')
    java.chmod(0o755)
    script = re.sub("|".join(places), lambda found: str(folder / places[found[0]]), data["start.sh"])
    environment = {"PATH": f"{java.parent}:{os.environ['PATH']}", "HOSTNAME": hostname, "HEAP_MEGABYTES": "96"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout
