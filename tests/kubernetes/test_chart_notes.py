"""NOTES.txt, which Helm renders only after an install: here it is a manifest in a copy of the chart."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from oncelog.cli.app import app
from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import CHART, FILES, NAMESPACE, RELEASE, helm, one

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")


def notes(tmp_path: Path, *words: str) -> str:
    """The notes that an install with these arguments prints."""
    copy = tmp_path / "oncelog"
    shutil.copytree(CHART, copy)
    text = (copy / "templates/NOTES.txt").read_text()
    (copy / "templates/NOTES.txt").unlink()
    wrapped = f'{{{{- define "notes" }}}}{text}{{{{- end }}}}\nnotes: {{{{ include "notes" . | toJson }}}}\n'
    (copy / "templates/notes.yaml").write_text(wrapped)
    place = ("--namespace", NAMESPACE, "--show-only", "templates/notes.yaml")
    done = helm("template", RELEASE, str(copy), *place, *words)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["notes"])


def commands(text: str) -> list[str]:
    """The lines with commands: indented lines that are not settings."""
    lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    return [line for line in lines if not line.startswith("ONCELOG_")]


def test_notes_have_the_next_commands(tmp_path: Path) -> None:
    """Commands that test the release, publish and read; the Deployment and each Oncelog command exist."""
    first, second, third = commands(notes(tmp_path))[:3]
    assert first == f"helm test {RELEASE} -n {NAMESPACE}"
    known = typer.main.get_command(app)
    for line in (second, third):
        found = re.search(r"kubectl exec (?:-i )?-n (\S+) deploy/(\S+) -- oncelog (\w+) \w+ (.*)", line)
        assert found is not None, line
        space, deployment, name, options = found.groups()
        assert (space, one("default", "Deployment", deployment)["kind"]) == (NAMESPACE, "Deployment")
        command = known.commands[name]  # type: ignore[attr-defined]
        understood = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z-]+", options)) <= understood, line
    assert "kubectl exec -i " in second, "what is piped in must arrive"


def test_notes_say_where_the_console_is(tmp_path: Path) -> None:
    """If it is enabled: at its Ingress, or at the end of a port-forward, whose scheme is that of the cluster."""
    enabled = ("--set", "auth.enabled=true,console.enabled=true")
    ingress = ("--set", "console.ingress.enabled=true,console.ingress.host=console.example")
    assert "/console/" not in notes(tmp_path / "off", *QUICK)
    assert "port-forward -n logs svc/oncelog-metadata 8080    # http://localhost:8080/console/" in notes(
        tmp_path / "on", *QUICK, *enabled
    )
    assert "token at https://console.example/console/" in notes(tmp_path / "ingress", *QUICK, *enabled, *ingress)


@pytest.mark.parametrize(
    ("replicas", "more"), [(3, ()), (5, ()), (3, ("--set", "storage.persistence.whenScaled=Delete"))]
)
def test_notes_say_how_volumes_of_removed_storage_nodes_are_deleted(
    replicas: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    """They are kept, because Kubernetes keeps them; the nodes that had them never come back."""
    installed = {"statefulsets/oncelog-storage": {"spec": {"replicas": 5}}}
    sizes = ("--set", f"storage.replicaCount={replicas}", *more)
    with answering(installed, tmp_path) as kubeconfig:
        text = notes(tmp_path, *QUICK, *sizes, "--dry-run=server", "--kubeconfig", kubeconfig)
    removal = "kubectl delete pvc -n logs data-oncelog-storage-3 data-oncelog-storage-4"
    assert ("2 storage nodes were removed" in text) is (replicas == 3)
    assert (removal in commands(text)) is (replicas == 3 and not more)


@pytest.mark.parametrize("replicas", [4, 5])
def test_notes_say_how_nodes_of_an_abandoned_removal_are_kept(replicas: int, tmp_path: Path) -> None:
    """Its Job stays as it has failed. An upgrade with the former number does not open the nodes to new entries."""
    host = "oncelog-storage-4.oncelog-storage-headless.logs.svc"
    args = ["oncelog.cli", "admin", "storage", "decommission", host, "--wait", "--wait-seconds", "3600"]
    job = {"spec": {"template": {"spec": {"containers": [{"name": "check", "args": args}]}}}}
    installed: dict[str, dict[str, Any]] = {
        "statefulsets/oncelog-storage": {"spec": {"replicas": 5}},
        "jobs/oncelog-storage-drain": job,
    }
    with answering(installed, tmp_path) as kubeconfig:
        sizes = ("--set", f"storage.replicaCount={replicas}")
        text = notes(tmp_path, *QUICK, *sizes, "--dry-run=server", "--kubeconfig", kubeconfig)
    kept = f"oncelog admin storage decommission {host} --cancel"
    assert any(line.endswith(kept) for line in commands(text)) is (replicas == 5)


def test_notes_name_existing_secrets_and_keys(tmp_path: Path) -> None:
    """The printed line returns the CA and the administrator's token."""
    told = re.findall(r"get secret -n logs (\S+) -o jsonpath='\{\.data\.(\S+)\}'", notes(tmp_path))
    assert [(name, key.replace("\\", "")) for name, key in told] == [
        ("oncelog-tls", "ca.crt"), ("oncelog-auth", "admin-token"),
    ]  # fmt: skip
    for name, key in told:
        assert key.replace("\\", "") in one("default", "Secret", name)["data"]


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ((), []),
        (("--set", "tls.enabled=false"), ["tls.enabled"]),
        (("--values", str(FILES["dev"])), ["owner.ackQuorum"]),
        (
            ("--values", str(FILES["plain"])),
            ["auth.enabled", "tls.enabled", "storage.persistence.enabled", "networkPolicy.enabled"],
        ),
        (
            ("--values", str(FILES["pipeline"]), "--set", "pipeline.checkpoint.persistence.enabled=false"),
            ["pipeline.namespace", "pipeline.checkpoint.persistence.enabled"],
        ),
        (("--values", str(FILES["everything"])), ["pipeline.closedLedgers"]),
    ],
    ids=["default", "without TLS", "dev", "plain", "pipeline", "everything"],
)
def test_unsafe_values_are_reported(words: tuple[str, ...], warned: list[str], tmp_path: Path) -> None:
    """With the name of the value. A token is sent in plain text only if a value allows it."""
    text = notes(tmp_path, *words)
    assert re.findall(r"^WARNING: ([\w.]+) is", text, re.MULTILINE) == warned
    assert text.count("--allow-plaintext-token") == (2 if warned == ["tls.enabled"] else 0)


@pytest.mark.parametrize(
    ("target", "granted"),
    [
        ("public/copies/all", {"public/default": "consume", "public/copies": "produce consume"}),
        ("all", {"public/default": "produce consume"}),
    ],
)
def test_notes_have_one_grant_per_namespace_for_spark_jobs(
    target: str, granted: dict[str, str], tmp_path: Path
) -> None:
    """A grant replaces the previous one: of two grants for one namespace only the second would remain."""
    text = notes(tmp_path, "--values", str(FILES["pipeline"]), "--set", f"pipeline.copy.to={target}")
    command = r"deploy/oncelog-metadata -- oncelog admin namespaces grant (\S+) oncelog-pipeline (.*)$"
    told = re.findall(command, text, re.MULTILINE)
    assert (dict(told), len(told)) == (granted, len(granted))
