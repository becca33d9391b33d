"""The ZooKeeper password survives the release like the volumes, and is never replaced by accident."""

from pathlib import Path

import pytest

from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import of_kind, template

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")
SECRET = "oncelog-zookeeper-auth"
OWNER = {"spec": {"replicas": 2, "template": {"spec": {"volumes": [{"name": "z", "secret": {"secretName": SECRET}}]}}}}
OPEN_OWNER = {"spec": {"replicas": 2, "template": {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}}}
KEPT = {"data": {"auth": "b25jZWxvZzprZXB0Cg=="}}


def test_secret_stays_after_an_uninstall() -> None:
    """The volumes stay, and their records belong to its user: a client with a new password could not read them."""
    (secret,) = [each for each in of_kind("default", "Secret") if each["metadata"]["name"] == SECRET]
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        ({"statefulsets/oncelog-owner": OWNER}, True),
        ({"statefulsets/oncelog-owner": OWNER, f"secrets/{SECRET}": KEPT}, False),
        ({"statefulsets/oncelog-owner": OPEN_OWNER}, False),
        ({f"secrets/{SECRET}": KEPT}, False),
    ],
    ids=["lost", "kept", "not used before", "installed again"],
)
def test_upgrade_without_the_password_in_use_is_refused(
    objects: dict[str, dict[str, object]], refused: bool, tmp_path: Path
) -> None:
    """A new password would lock out every pod that starts afterwards."""
    with answering(objects, tmp_path) as kubeconfig:
        done = template(*QUICK, "--dry-run=server", "--kubeconfig", kubeconfig)
    assert (done.returncode != 0) is refused, done.stderr
    if refused:
        assert f"the Secret {SECRET} is missing" in done.stderr
    elif f"secrets/{SECRET}" in objects:
        assert "auth: b25jZWxvZzprZXB0Cg==" in done.stdout
