"""The certificate that the chart's ZooKeeper serves, when the one in its Secret changes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.until import until_sync
from tests.kubernetes.chart import one
from tests.kubernetes.test_chart_backend_tls import found, upgraded

DEADLINE_S = 60.0
CHART_MADE = ("--set", "auth.enabled=false")


# --- a renewal --------------------------------------------------------------------------------------------------------


class Renewal:
    """The chart's renewal.sh beside a process that stands for the server.

    tls.sh is replaced by one that copies, and notes each call; ask.sh by one that finds a leader.
    """

    def __init__(self, folder: Path, jar: str, number: int) -> None:
        self.source, self.target, scripts, jars = (folder / name for name in ("source", "target", "scripts", "jars"))
        for directory in (self.source, self.target, scripts, jars):
            directory.mkdir()
        self.calls = folder / "calls"
        (scripts / "tls.sh").write_text(f'cp "$1/tls.crt" "$2/keystore.pem"; echo >>{self.calls}\n')
        (scripts / "ask.sh").write_text('[ "$*" = "srvr Mode:" ]\n')
        (scripts / "renewal.sh").write_text(one("default", "ConfigMap", "oncelog-zookeeper")["data"]["renewal.sh"])
        (jars / jar).touch()
        (self.source / "tls.crt").write_text("first")
        (self.target / "keystore.pem").write_text("first")
        self.server = subprocess.Popen(["sleep", "600"])
        words = [self.source, self.target, jars, self.server.pid, number, 0.01]
        self.said = folder / "said"
        with self.said.open("w") as said:
            self.script = subprocess.Popen(["bash", str(scripts / "renewal.sh"), *map(str, words)], stderr=said)

    def looks(self) -> int:
        return len(self.calls.read_text()) if self.calls.exists() else 0

    def wait_for_looks(self, count: int) -> None:
        until_sync(lambda: self.looks() >= count, DEADLINE_S)

    def end(self) -> None:
        for process in (self.server, self.script):
            process.kill()
            process.wait()


@pytest.fixture
def renewals(tmp_path: Path) -> Iterator[list[Renewal]]:
    started: list[Renewal] = []
    yield started
    for each in started:
        each.end()


@pytest.mark.parametrize("jar", ["zookeeper-3.8.0.jar", "zookeeper-3.6.4.jar", "zookeeper-3.7.1.jar", "zookeeper.jar"])
def test_server_that_reads_its_certificate_at_the_start_only_ends(
    tmp_path: Path, renewals: list[Renewal], jar: str
) -> None:
    """Otherwise it serves the former certificate until that expires, and then nothing connects any more."""
    renewals.append(renewal := Renewal(tmp_path, jar, number=2))
    renewal.wait_for_looks(9)
    assert renewal.server.poll() is None, "nothing has changed"
    (renewal.source / "tls.crt").write_text("second")
    before = renewal.looks()
    assert renewal.server.wait(DEADLINE_S) == -15
    assert renewal.looks() - before >= 8 - 1, "the second server waits for the first one"
    assert (renewal.target / "keystore.pem").read_text() == "second"
    renewal.script.wait(DEADLINE_S)
    assert "the server starts again" in renewal.said.read_text()


@pytest.mark.parametrize("jar", ["zookeeper-3.8.1.jar", "zookeeper-3.7.2.jar", "zookeeper-3.9.3.jar"])
def test_server_that_reads_its_certificate_again_goes_on(tmp_path: Path, renewals: list[Renewal], jar: str) -> None:
    """From 3.7.2, 3.8.1 and 3.9.0 on."""
    renewals.append(renewal := Renewal(tmp_path, jar, number=1))
    renewal.wait_for_looks(1)
    (renewal.source / "tls.crt").write_text("second")
    renewal.wait_for_looks(renewal.looks() + 12)
    assert (renewal.target / "keystore.pem").read_text() == "second"
    assert renewal.server.poll() is None
    assert renewal.said.read_text() == ""


# --- another CA -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["zookeeper", "redis"])
def test_pods_restart_when_the_chart_replaces_the_certificate_that_they_serve(tmp_path: Path, component: str) -> None:
    """They get another annotation with the step `switch` alone: `finish` is sent when all serve the new certificate,
    because `helm upgrade --wait` waits for the pods."""
    objects: dict[str, dict[str, Any]] = {}
    seen: list[str | None] = []
    for step in ("", "prepare", "switch", "switch", "", "finish", ""):
        manifests = upgraded(objects, tmp_path, *CHART_MADE, "--set", f"tls.rotation={step}")
        pods = found(manifests, "StatefulSet", f"oncelog-{component}")
        seen.append(pods["spec"]["template"]["metadata"]["annotations"].get("checksum/certificate"))
        objects = {
            "secrets/oncelog-tls": {"data": found(manifests, "Secret", "oncelog-tls")["data"]},
            f"statefulsets/oncelog-{component}": {"spec": pods["spec"]},
        }
    assert seen[:2] == [None, None]
    assert seen[2] is not None
    assert set(seen[2:]) == {seen[2]}
