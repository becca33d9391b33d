"""The Deployment of relays: its command, its Secret, and its way to the log."""

import pytest

from oncelog.cli.relay.app import run
from tests.kubernetes.chart import FILES, manifests_in, of_kind, one, template


def test_two_relays_get_database_token_and_ca_from_one_secret() -> None:
    spec = one("pipeline", "Deployment", "oncelog-relay")["spec"]
    assert spec["replicas"] == 2
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == "oncelog-relay:1.2.3"
    environment = {each["name"]: each for each in container["env"]}
    assert environment["ONCELOG_RELAY_DATABASE"]["valueFrom"]["secretKeyRef"] == {
        "name": "shop-relay",
        "key": "database",
    }
    assert environment["ONCELOG_URL"]["value"].startswith("oncelog+tls://")
    (secret,) = (each["secret"] for each in spec["template"]["spec"]["volumes"] if "secret" in each)
    assert [item["key"] for item in secret["items"]] == ["database", "token", "ca.crt"]


@pytest.mark.parametrize("argument", ["--health-host", "--health-port", "--keep"])
def test_arguments_are_those_of_the_command(argument: str) -> None:
    (container,) = one("pipeline", "Deployment", "oncelog-relay")["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["oncelog.cli", "relay", "run"]
    assert argument in container["args"]
    assert argument.removeprefix("--").replace("-", "_") in run.__annotations__


def test_relays_reach_the_log_where_clients_are_restricted() -> None:
    """As pods of the release, not as clients."""
    values = ("--values", str(FILES["pipeline"]), "--set", "networkPolicy.clients[0].podSelector.matchLabels.app=shop")
    done = template(*values, "--show-only", "templates/networkpolicies.yaml")
    policies = {each["metadata"]["name"]: each for each in manifests_in(done.stdout)}
    for part in ("metadata", "owner"):
        peers = policies[f"oncelog-{part}"]["spec"]["ingress"][0]["from"]
        components = [peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component") for peer in peers]
        assert "relay" in components


def test_relays_are_off_by_default() -> None:
    assert "oncelog-relay" not in [each["metadata"]["name"] for each in of_kind("default", "Deployment")]
