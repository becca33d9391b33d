"""Jobs of Helm's hooks run before an upgrade: with what exists then, at the services that run then."""

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import manifests_in, one, template
from tests.kubernetes.test_chart_notes import notes

QUICK = ("--set", "tls.enabled=false,redis.enabled=false")
ASKED: dict[str, dict[str, Any]] = {"configmaps/kube-root-ca.crt": {}}
#: made by a former install
KEY = {
    "secrets/oncelog-auth": {
        "data": {"key": "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5emFiY2RlZmdoaWprbA=="}
    }
}


def running(*variables: str) -> dict[str, dict[str, Any]]:
    """The metadata services of a release that have these variables."""
    container = {"name": "metadata", "env": [{"name": name, "value": "x"} for name in variables]}
    return {"deployments/oncelog-metadata": {"spec": {"template": {"spec": {"containers": [container]}}}}}


def upgrade(objects: dict[str, dict[str, Any]], tmp_path: Path, *words: str) -> set[str]:
    """Names of the Jobs that an upgrade has."""
    with answering({**ASKED, **objects}, tmp_path) as kubeconfig:
        done = template(*QUICK, *words, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    return {each["metadata"]["name"] for each in manifests_in(done.stdout) if each["kind"] == "Job"}


AUTH = "ONCELOG_AUTH_KEY_FILE"


def test_level_is_checked_where_the_secret_exists(tmp_path: Path) -> None:
    assert upgrade({**KEY, **running(AUTH)}, tmp_path) == {"oncelog-level"}


def test_secret_that_the_upgrade_makes_is_not_waited_for(tmp_path: Path) -> None:
    """A pod waits for ever for a Secret that does not exist, and the hook runs before the upgrade makes it: to delete a
    Secret and to run an upgrade would end with a time-out."""
    assert upgrade(running(AUTH), tmp_path) == set()


@pytest.mark.parametrize(
    ("variables", "words"),
    [((), ()), ((AUTH,), ("--set", "auth.enabled=false"))],
    ids=["auth is switched on", "auth is switched off"],
)
def test_services_that_do_not_take_the_new_credentials_are_not_asked(
    variables: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    """They would refuse, and the upgrade with them."""
    assert upgrade({**KEY, **running("ONCELOG_LISTEN_HOST", *variables)}, tmp_path, *words) == set()


def test_nodes_are_not_removed_where_they_cannot_be_asked(tmp_path: Path) -> None:
    nodes = {"statefulsets/oncelog-storage": {"spec": {"replicas": 5}}}
    with answering({**ASKED, **nodes, **running(AUTH)}, tmp_path) as kubeconfig:
        done = template(*QUICK, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode != 0
    assert "the Secret oncelog-auth does not exist, so the upgrade makes it. Make this upgrade with" in done.stderr
    assert "storage.replicaCount=5, and lower it in the next one" in done.stderr


@pytest.mark.parametrize(
    ("objects", "words", "said"),
    [
        ({**KEY, **running(AUTH)}, ("--set", "levelCheck.enabled=false"), "WARNING: levelCheck.enabled is false"),
        (
            running(AUTH),
            (),
            "WARNING: nobody asked the cluster whether this version may take part in it, because the Secret",
        ),
    ],
)
def test_unchecked_level_is_told(
    objects: dict[str, dict[str, Any]], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """After each upgrade: the value stays as it is in later ones."""
    with answering({**ASKED, **objects}, tmp_path) as kubeconfig:
        text = notes(tmp_path, *QUICK, *words, "--is-upgrade", "--dry-run=server", "--kubeconfig", kubeconfig)
    assert said in text


def test_error_of_a_job_is_in_the_state_of_its_pod() -> None:
    """`kubectl describe pod` shows it also when the log is gone."""
    for name, kind, of in (("everything", "Job", "oncelog-provisioning"), ("pipeline", "CronJob", "oncelog-backup")):
        spec = one(name, kind, of)["spec"]
        pod = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
        assert pod["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
