"""The chart's Deployments of `oncelog mirror` and `oncelog relay`: command, Secrets, and the way to the log."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog_effects.cli.relay.app import run
from tests.kubernetes.chart import FILES, Manifest, manifests_in, of_kind, one, template


def mirrors(name: str) -> Iterator[Manifest]:
    return (each for each in of_kind(name, "Deployment") if "-mirror-" in each["metadata"]["name"])


def arguments(deployment: Manifest) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    program, *words = container["args"]
    assert program == "oncelog.cli"
    return list(words)


@pytest.mark.parametrize("name", ["everything", "plain"])
def test_options_of_mirrors_are_those_of_the_command(name: str) -> None:
    """It gets as far as the files with the secrets, which only pods have."""
    for deployment in mirrors(name):
        words = [word for word in arguments(deployment) if "/etc/oncelog/" not in word]
        done = CliRunner().invoke(app, [*words, "--timeout", "0"])
        assert done.exit_code == 2
        assert "Invalid value for '--timeout'" in done.output, (shlex.join(words), done.output)


def test_mirror_has_what_its_values_say() -> None:
    first, second = mirrors("everything")
    assert (first["spec"]["replicas"], second["spec"]["replicas"]) == (3, 2)
    assert arguments(first)[1:5] == [
        "--from=oncelog+tls://a.example:6650", "--to=oncelog+tls://oncelog-metadata.logs.svc:6650", "--topic=orders",
        "--topic=eu/shop/payments",
    ]  # fmt: skip
    assert {"--from-token-file=/etc/oncelog/source-token/token", "--compression=zstd", "--subscriptions"} <= set(
        arguments(first)
    )
    assert {"--namespace=eu/shop", "--pattern=carts-.*", "--allow-gap"} <= set(arguments(second))
    volumes: list[dict[str, Any]] = first["spec"]["template"]["spec"]["volumes"]
    secrets = {each["name"]: each["secret"]["secretName"] for each in volumes if "secret" in each}
    assert secrets["token"] == "mirror-token"
    assert (secrets["source-token"], secrets["source-ca"]) == ("a-token", "a-ca")
    tls = next(each["secret"] for each in volumes if each["name"] == "tls")
    assert [item["key"] for item in tls["items"]] == ["ca.crt"]  # and not the services' private key


def test_mirror_without_a_token_is_refused_where_one_is_needed() -> None:
    values = "mirrors[0].name=a,mirrors[0].source.url=oncelog://a:6650,mirrors[0].topics[0]=orders"
    done = template("--set", f"tls.enabled=false,{values}")
    assert done.returncode != 0
    assert "mirrors: a needs tokenSecret" in done.stderr


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
