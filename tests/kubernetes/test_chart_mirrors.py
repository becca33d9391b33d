"""The chart's Deployments of `oncelog mirror`."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from tests.kubernetes.chart import Manifest, of_kind, template


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
