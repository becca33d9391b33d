"""TLS of the chart's ZooKeeper and Redis, and the replacement of the CA that the chart created."""

import base64
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import TIMEOUT_S, Manifest, environment, manifests_in, one, template

MODES = ["off", "accept", "prefer", "require"]
#: Without what takes long to create and is not examined here.
QUICK = ("--set", "auth.enabled=false,tls.existingSecret=ours")
CONFIG = "configmaps/oncelog-zookeeper"


def upgraded(objects: dict[str, dict[str, Any]], directory: Path, *words: str) -> list[Manifest] | str:
    """What an upgrade would create beside these objects; or the error."""
    with answering(objects, directory) as kubeconfig:
        done = template(*words, "--dry-run=server", "--kubeconfig", kubeconfig)
    return manifests_in(done.stdout) if not done.returncode else done.stderr


def found(manifests: list[Manifest] | str, kind: str, name: str) -> Manifest:
    assert isinstance(manifests, list), manifests
    (each,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return each


@pytest.mark.parametrize(
    ("kept", "given", "mode"),
    [
        (None, "", "require"),
        ({"zoo.cfg": ""}, "", "off"),
        ({"tls-mode": "accept"}, "", "accept"),
        (None, "off", "off"),
        *[({"tls-mode": former}, later, later) for former, later in pairwise(MODES)],
        *[({"tls-mode": later}, former, former) for former, later in pairwise(MODES)],
    ],
)
def test_mode_of_a_release(kept: dict[str, str] | None, given: str, mode: str, tmp_path: Path) -> None:
    """A new release requires TLS. An upgrade keeps the mode: a server that requires TLS would cut off the pods of
    before the upgrade, and the other servers of its ensemble."""
    objects = {} if kept is None else {CONFIG: {"data": kept}}
    manifests = upgraded(objects, tmp_path, *QUICK, "--set", f"zookeeper.tls.mode={given}")
    data = found(manifests, "ConfigMap", "oncelog-zookeeper")["data"]
    assert data["tls-mode"] == mode
    (owner,) = found(manifests, "StatefulSet", "oncelog-owner")["spec"]["template"]["spec"]["containers"]
    port = "2281" if mode in ("prefer", "require") else "2181"
    assert environment(owner)["ONCELOG_ZOOKEEPER_HOSTS"].endswith(f":{port}")
    assert ("ONCELOG_ZOOKEEPER_TLS" in environment(owner)) is (port == "2281")
    setting = dict(re.findall(r"^([\w.]+)=(\S+)$", data["zoo.cfg"], re.MULTILINE))
    assert ("secureClientPort" in setting) is (mode != "off")
    assert setting.get("clientPortAddress") == ("127.0.0.1" if mode == "require" else None)
    assert (setting.get("sslQuorum"), setting.get("portUnification")) == {
        "off": (None, None),
        "accept": ("false", "true"),
        "prefer": ("true", "true"),
        "require": ("true", "false"),
    }[mode]


@pytest.mark.parametrize(("kept", "given"), [("off", "prefer"), ("require", "accept"), ("accept", "require")])
def test_mode_changes_one_step_at_a_time(kept: str, given: str, tmp_path: Path) -> None:
    """Two servers whose modes are not neighbours cannot talk to each other."""
    objects = {CONFIG: {"data": {"tls-mode": kept}}}
    refusal = upgraded(objects, tmp_path, *QUICK, "--set", f"zookeeper.tls.mode={given}")
    assert isinstance(refusal, str)
    assert f"zookeeper.tls.mode cannot change from {kept} to {given} in one upgrade" in refusal


def test_redis_has_the_same_modes(tmp_path: Path) -> None:
    """One port for each kind of connection, so that both can be open."""
    for mode, ports in zip(MODES, (("6379", None), ("6379", "6380"), ("6379", "6380"), ("0", "6380")), strict=True):
        manifests = upgraded({}, tmp_path, *QUICK, "--set", f"redis.tls.mode={mode}")
        lines = found(manifests, "ConfigMap", "oncelog-redis")["data"]["redis.conf"].splitlines()
        setting = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
        assert (setting["port"], setting.get("tls-port")) == ports
        (metadata,) = found(manifests, "Deployment", "oncelog-metadata")["spec"]["template"]["spec"]["containers"]
        url = environment(metadata)["ONCELOG_REDIS_URL"]
        assert url.startswith("rediss://" if mode in ("prefer", "require") else "redis://")
        assert f":{ports[1] if url.startswith('rediss') else ports[0]}/" in url


# --- what ZooKeeper reads ---------------------------------------------------------------------------------------------


def written(folder: Path, key: bytes) -> subprocess.CompletedProcess[str]:
    """Run the chart's tls.sh for a Secret with this key."""
    secret = folder / "secret"
    secret.mkdir(exist_ok=True)
    for name, content in (("tls.key", key), ("tls.crt", b"certificate\n"), ("ca.crt", b"authority\n")):
        (secret / name).write_bytes(content)
    script = one("default", "ConfigMap", "oncelog-zookeeper")["data"]["tls.sh"]
    words = ["bash", "-c", script, "tls.sh", str(secret), str(folder / "made")]
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize("form", ["TraditionalOpenSSL", "PKCS8"])
@pytest.mark.parametrize("bits", [2048, 4096])
def test_key_is_written_in_the_form_that_java_reads(tmp_path: Path, form: str, bits: int) -> None:
    """Helm creates RSA keys in another form, and ZooKeeper would not start with them."""
    key = rsa.generate_private_key(65_537, bits)
    form_of_key = getattr(serialization.PrivateFormat, form)
    pem = key.private_bytes(serialization.Encoding.PEM, form_of_key, serialization.NoEncryption())
    assert written(tmp_path, pem).returncode == 0
    text = (tmp_path / "made/keystore.pem").read_bytes()
    assert text.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert text.endswith(b"certificate\n")
    made = serialization.load_pem_private_key(text, None)
    assert isinstance(made, rsa.RSAPrivateKey)
    assert made.private_numbers() == key.private_numbers()
    assert (tmp_path / "made/truststore.pem").read_bytes() == b"authority\n"
    first = (tmp_path / "made/keystore.pem").stat()
    assert written(tmp_path, pem).returncode == 0
    assert (tmp_path / "made/keystore.pem").stat().st_mtime_ns == first.st_mtime_ns


def test_unknown_form_of_a_key_is_reported_with_the_command_that_converts_it(tmp_path: Path) -> None:
    """An elliptic curve key of OpenSSL, for example."""
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, traditional, serialization.NoEncryption())
    done = written(tmp_path, pem)
    assert done.returncode != 0
    assert "openssl pkcs8 -topk8 -nocrypt" in done.stderr
    assert not (tmp_path / "made/keystore.pem").exists()


# --- another CA -------------------------------------------------------------------------------------------------------


def rotated(kept: dict[str, str] | None, step: str, directory: Path) -> dict[str, str] | str:
    """The TLS Secret after an upgrade with this step; or the error."""
    objects = {} if kept is None else {"secrets/oncelog-tls": {"data": kept}}
    manifests = upgraded(objects, directory, "--set", f"auth.enabled=false,redis.enabled=false,tls.rotation={step}")
    if isinstance(manifests, str):
        return manifests
    data: dict[str, str] = found(manifests, "Secret", "oncelog-tls")["data"]
    return data


def certificates(encoded: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(base64.b64decode(encoded))


def test_ca_is_replaced_in_three_steps(tmp_path: Path) -> None:
    """At each step, services that have the files of the step before trust those that have the new ones, and the other
    way round. Each step may be repeated."""
    former = rotated(None, "", tmp_path)
    assert isinstance(former, dict)
    assert set(former) == {"ca.crt", "tls.crt", "tls.key"}
    steps = [former]
    for step in ("prepare", "switch", "finish"):
        data = rotated(steps[-1], step, tmp_path)
        assert isinstance(data, dict), data
        assert rotated(data, step, tmp_path) == data, "repeated"
        assert rotated(data, "", tmp_path) == data, "an upgrade in between"
        for one_side, other in ((steps[-1], data), (data, steps[-1]), (data, data)):
            (leaf,) = certificates(one_side["tls.crt"])
            (signer,) = [ca for ca in certificates(other["ca.crt"]) if ca.subject == leaf.issuer]
            leaf.verify_directly_issued_by(signer)
        steps.append(data)
    assert set(steps[-1]) == set(former)
    assert all(steps[-1][key] != former[key] for key in former)


@pytest.mark.parametrize(
    ("after", "step", "complaint"),
    [("", "switch", "run an upgrade with tls.rotation=prepare first"), ("prepare", "finish", "tls.rotation=switch")],
)
def test_step_without_the_one_before_is_refused(after: str, step: str, complaint: str, tmp_path: Path) -> None:
    """It would cut off whoever has the former files."""
    kept = rotated(None, "", tmp_path)
    assert isinstance(kept, dict)
    if after:
        kept = rotated(kept, after, tmp_path)
        assert isinstance(kept, dict)
    refusal = rotated(kept, step, tmp_path)
    assert isinstance(refusal, str)
    assert complaint in refusal
