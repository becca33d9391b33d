"""The chart's Redis and the metadata services use a changed password without manual steps."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cluster.kills import idle
from tests.contract.stores.redis_process import RedisProcess
from tests.kubernetes.chart import Manifest, containers, environment, one

TIMEOUT_S = 60
NOBODY = 65_534


def redis_container() -> Manifest:
    (found,) = [container for part, container in containers("default") if part == "redis"]
    return found


def passes(probe: str, folder: Path, port: int) -> bool:
    """Whether the probe of this name, as rendered, passes on a server at this port with its files in `folder`."""
    program, script, expected = redis_container()[probe]["exec"]["command"]
    assert script == "/etc/oncelog-redis/ask.sh"
    text = one("default", "ConfigMap", "oncelog-redis")["data"]["ask.sh"]
    text = text.replace("/etc/oncelog-redis", str(folder)).replace("-s /tmp/redis.sock", f"-p {port}")
    text = text.replace("/etc/oncelog/tls", f"{folder}/secret").replace("/tmp/tls", f"{folder}/used")
    words = [program, "-c", text, "ask.sh", expected]
    return subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False).returncode == 0


def test_redis_restarts_for_a_new_password(tmp_path: Path) -> None:
    """The server reads the password only at its start. When the file of the Secret changes, the probes must fail, so
    that Kubernetes restarts it. A server with the current password passes."""
    (tmp_path / "password.conf").write_text("requirepass first\n")
    with RedisProcess.running(tmp_path / "redis", "--requirepass", "first") as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert passes(probe, tmp_path, server.port)
        (tmp_path / "password.conf").write_text("requirepass second\n")
        for probe in ("livenessProbe", "readinessProbe"):
            assert not passes(probe, tmp_path, server.port)
        (tmp_path / "password.conf").write_text("requirepass first\n")
        server.kill(once=idle)
        assert not passes("livenessProbe", tmp_path, server.port)


def test_redis_restarts_for_a_renewed_certificate(tmp_path: Path) -> None:
    """Like the password, the server reads it only at its start."""
    (tmp_path / "password.conf").write_text("requirepass first\n")
    for folder in ("secret", "used"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tls.crt").write_text("former")
    with RedisProcess.running(tmp_path / "redis", "--requirepass", "first") as server:
        assert passes("livenessProbe", tmp_path, server.port)
        (tmp_path / "secret/tls.crt").write_text("renewed")
        assert not passes("livenessProbe", tmp_path, server.port)


def test_restarted_redis_uses_the_present_certificate() -> None:
    """Read-only copies of the former one are still there: the container restarts, and not the pod. The container's user
    is not root, who may replace any file."""
    user = NOBODY if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.chmod(0o777)
        (folder / "secret").mkdir()
        (folder / "secret").chmod(0o755)
        (folder / "redis-server").write_text("#!/bin/sh\n")
        (folder / "redis-server").chmod(0o755)
        script = one("default", "ConfigMap", "oncelog-redis")["data"]["start.sh"]
        script = script.replace("/etc/oncelog/tls", f"{folder}/secret").replace("/tmp/tls", f"{folder}/used")
        environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
        for content in ("former", "renewed"):
            for name in ("tls.crt", "tls.key", "ca.crt"):
                file = folder / "secret" / name
                file.unlink(missing_ok=True)
                file.write_text(content)
                file.chmod(0o444)
            command = ["sh", "-c", script]
            subprocess.run(command, env=environment, user=user, cwd="/", timeout=TIMEOUT_S, check=True)
            assert {file.read_text() for file in (folder / "used").iterdir()} == {content}


def test_no_password_is_in_a_variable() -> None:
    """A variable keeps the value that it had when the container started."""
    assert environment(redis_container()) == {}


@pytest.mark.parametrize(
    ("file", "secret", "setting", "key"),
    [
        ("default", "oncelog-redis", "ONCELOG_REDIS_PASSWORD_FILE", "password"),
        ("external", "our-redis", "ONCELOG_REDIS_URL_FILE", "url"),
    ],
)
def test_services_read_the_password_from_an_updated_file(file: str, secret: str, setting: str, key: str) -> None:
    """Kubernetes updates a mounted file in a running pod, unless it is mounted with `subPath`."""
    spec = one(file, "Deployment", "oncelog-metadata")["spec"]["template"]["spec"]
    (volume,) = [each["secret"] for each in spec["volumes"] if each["name"] == "redis"]
    assert volume["secretName"] == secret
    assert {"key": key, "path": key} in volume["items"]
    (container,) = spec["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "redis"]
    assert "subPath" not in mount
    assert environment(container)[setting] == f"{mount['mountPath']}/{key}"
