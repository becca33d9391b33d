"""The certificate that the chart's ZooKeeper serves, when the one in its Secret changes."""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncelog.metadata.observing.served_certificates import ServedCertificates, places_of
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.zookeeper_server import find_server_jars
from tests.cluster.until import until, until_sync
from tests.contract.process.security_world import new_pair, tls_environment
from tests.kubernetes.chart import manifests_in, one, template
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
        copies = 'cp "$1/tls.crt" "$2/new"; mv "$2/new" "$2/keystore.pem"'
        (scripts / "tls.sh").write_text(f"{copies}; echo >>{self.calls}\n")
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


# --- the version of the official image --------------------------------------------------------------------------------

#: Places in the image and what stands for them below a folder of the test.
PLACES = {
    "/etc/oncelog-zookeeper": "config",
    "/etc/oncelog/tls": "secret",
    "/apache-zookeeper-": "image/apache-zookeeper-",
    "/data": "data",
    "/tmp": "tmp",
}


def container_of(folder: Path, ports: dict[str, int]) -> Path:
    """The start script of the chart's ZooKeeper, with all that its container has. The jars are those of PySpark, which
    are of the version that the chart's default image has."""
    for name in ("config", "secret", "data", "tmp", "image/apache-zookeeper-3/lib"):
        (folder / name).mkdir(parents=True)
    jars = find_server_jars()
    for jar in (*jars, *jars[0].parent.glob("netty-*.jar")):
        (folder / "image/apache-zookeeper-3/lib" / jar.name).symlink_to(jar)
    pattern = "|".join(PLACES)
    rendered = template("--set", "zookeeper.replicaCount=1,auth.enabled=false", "-s", "templates/zookeeper.yaml")
    for name, text in found(manifests_in(rendered.stdout), "ConfigMap", "oncelog-zookeeper")["data"].items():
        own = re.sub(pattern, lambda place: str(folder / PLACES[place[0]]), text)
        for key, port in ports.items():
            own = re.sub(rf"^{key}=\d+$", f"{key}={port}", own, flags=re.MULTILINE)
        (folder / "config" / name).write_text(own.replace(" 30 &", " 0.2 &"))
    return folder / "config/start.sh"


@pytest.mark.asyncio
async def test_renewed_certificate_is_served_by_the_version_of_the_official_image(tmp_path: Path) -> None:
    """ZooKeeper 3.9, by the chart's own script and settings: without a restart."""
    with claim_port("127.0.0.1") as plain, claim_port("127.0.0.1") as secure:
        start = container_of(tmp_path, {"clientPort": port_of(plain), "secureClientPort": port_of(secure)})
        tls_environment(tmp_path / "secret")
        settings = {
            "ONCELOG_ZOOKEEPER_HOSTS": f"127.0.0.1:{port_of(secure)}",
            "ONCELOG_ZOOKEEPER_TLS": "true",
            "ONCELOG_ZOOKEEPER_TLS_CA_FILE": str(tmp_path / "secret/ca.crt"),
        }
        served = ServedCertificates(partial(places_of, load(MetadataSettings, settings)))

        async def days_left() -> list[int]:
            await served.look()
            return [round((reading.value - time.time()) / 86_400) for reading in served.readings()]

        environment = {**os.environ, "HOSTNAME": "oncelog-zookeeper-0", "HEAP_MEGABYTES": "96"}
        with (tmp_path / "log").open("wb") as log:
            server = await asyncio.create_subprocess_exec("bash", str(start), env=environment, stdout=log, stderr=log)
        try:
            await until(lambda: _is(days_left(), [1]), DEADLINE_S, waiting_for="the first certificate")
            new_pair(tmp_path / "secret", days=90)
            await until(lambda: _is(days_left(), [90]), DEADLINE_S, waiting_for="the renewed certificate")
            assert server.returncode is None
        finally:
            print((tmp_path / "log").read_text()[-4000:])
            server.kill()
            await server.wait()


async def _is(found: Awaitable[list[int]], wanted: list[int]) -> bool:
    return await found == wanted
