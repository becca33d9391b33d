"""Objects that must exist before an install: Helm reports missing ones and how to create them.

Without a cluster to query, nothing is refused.
"""

from pathlib import Path

import pytest

from tests.kubernetes.api_server import answering
from tests.kubernetes.chart import template

#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,auth.enabled=false,redis.enabled=false")
NAMESPACE_EXISTS: dict[str, dict[str, dict[str, str]]] = {"configmaps/kube-root-ca.crt": {"data": {}}}
#: (the arguments, the value that names a Secret, the keys that it must have)
SECRETS = [
    ("auth.enabled=true,auth.existingSecret=ours", "auth.existingSecret", ["key", "service-token", "admin-token"]),
    ("tls.enabled=true,tls.existingSecret=ours", "tls.existingSecret", ["tls.crt", "tls.key", "ca.crt"]),
    ("redis.external.urlSecret=ours", "redis.external.urlSecret", ["url"]),
    ("redis.external.urlSecret=ours,redis.external.ca=true", "redis.external.urlSecret", ["url", "ca.crt"]),
    (
        (
            "zookeeper.enabled=false,zookeeper.externalHosts={zk:2181},zookeeper.external.tls=true,"
            "zookeeper.external.tlsSecret=ours,zookeeper.external.clientCertificate=true"
        ),
        "zookeeper.external.tlsSecret",
        ["ca.crt", "tls.crt", "tls.key"],
    ),
]
#: (value, a kind that it needs, the product that installs it)
KINDS = [
    ("metrics.serviceMonitor.enabled", "monitoring.coreos.com/v1/ServiceMonitor", "the Prometheus operator"),
    ("metrics.prometheusRule.enabled", "monitoring.coreos.com/v1/PrometheusRule", "the Prometheus operator"),
    ("tls.certManager.enabled", "cert-manager.io/v1/Certificate", "cert-manager"),
]
#: Further values that such a value needs.
WITH = {"tls.certManager.enabled": ("--set", "tls.enabled=true,tls.certManager.issuerRef.name=ours")}
#: The kinds of a cluster; `helm template` alone has API versions, and no kinds.
ASKED = ("--api-versions", "apps/v1/StatefulSet")


@pytest.mark.parametrize(("given", "value", "keys"), SECRETS)
def test_missing_user_secret_is_reported_at_the_install(
    given: str, value: str, keys: list[str], tmp_path: Path
) -> None:
    """Pods would silently wait for it. The message has the command that creates it, with every key."""
    with answering(NAMESPACE_EXISTS, tmp_path) as kubeconfig:
        done = template(*QUICK, "--set", given, "--dry-run=server", "--kubeconfig", kubeconfig)
    assert done.returncode != 0
    files = " ".join(f"--from-file={key}" for key in keys)
    assert f"{value} is ours, but there is no such Secret in namespace logs" in done.stderr
    assert f"kubectl create secret generic ours --namespace logs {files}" in done.stderr


@pytest.mark.parametrize(("given", "value", "keys"), SECRETS)
def test_secret_without_a_required_key_is_reported_at_the_install(
    given: str, value: str, keys: list[str], tmp_path: Path
) -> None:
    """An empty key counts as missing. A Secret with all keys is accepted."""
    whole = dict.fromkeys(keys, "eA==")
    for data, complaint in ((whole, None), ({**whole, keys[-1]: ""}, keys[-1])):
        with answering({**NAMESPACE_EXISTS, "secrets/ours": {"data": data}}, tmp_path) as kubeconfig:
            done = template(*QUICK, "--set", given, "--dry-run=server", "--kubeconfig", kubeconfig)
        if complaint is None:
            assert done.returncode == 0, done.stderr
        else:
            words = f"{value} is ours, but this Secret in namespace logs has no key {complaint}."
            assert words in done.stderr


def test_secrets_are_not_checked_without_a_cluster(tmp_path: Path) -> None:
    """Tools that render first and apply later cannot look them up; neither can an install that creates its
    namespace."""
    given = (*QUICK, "--set", SECRETS[0][0])
    assert template(*given).returncode == 0
    with answering({}, tmp_path) as kubeconfig:
        assert template(*given, "--dry-run=server", "--kubeconfig", kubeconfig).returncode == 0


@pytest.mark.parametrize(("value", "kind", "source"), KINDS)
def test_missing_kind_is_reported_at_the_install(value: str, kind: str, source: str) -> None:
    """Monitoring and cert-manager are extensions that a cluster may not have."""
    done = template(*QUICK, *ASKED, *WITH.get(value, ()), "--set", f"{value}=true")
    assert done.returncode != 0
    words = f"{value} is true, but the cluster does not have {kind}. Install {source} first, or set it to false"
    assert words in done.stderr


def test_available_kinds_are_used() -> None:
    """The control."""
    known = [word for _, kind, _ in KINDS for word in ("--api-versions", kind)]
    wanted = [word for value, _, _ in KINDS for word in (*WITH.get(value, ()), "--set", f"{value}=true")]
    done = template(*QUICK, *ASKED, *known, *wanted)
    assert done.returncode == 0, done.stderr
