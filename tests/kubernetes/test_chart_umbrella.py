"""The chart as a subchart: condition, alias, and `global` values of the umbrella chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.chart import CHART, NAMESPACE, Manifest, helm, manifests_in

#: Without certificates, which take longer to create than the rest of the chart.
QUICK: dict[str, Any] = {"tls": {"enabled": False}, "auth": {"enabled": False}}
GLOBAL = {"team": "orders", "imageRegistry": "mirror.example", "imagePullSecrets": ["plain", {"name": "mapped"}]}


def umbrella(directory: Path, dependencies: list[Manifest], values: Manifest) -> list[Manifest]:
    """The manifests of an umbrella chart with these dependencies."""
    (directory / "Chart.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": dependencies})
    )
    (directory / "values.yaml").write_text(yaml.safe_dump(values))
    built = helm("dependency", "build", str(directory))
    assert built.returncode == 0, built.stderr
    done = helm("template", "live", str(directory), "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stderr
    return manifests_in(done.stdout)


def dependency(**more: str) -> Manifest:
    return {"name": "oncelog", "version": "0.1.0", "repository": f"file://{CHART}", **more}


@pytest.mark.parametrize("enabled", [True, False])
def test_condition_of_an_umbrella_turns_the_chart_on_and_off(enabled: bool, tmp_path: Path) -> None:
    """`condition: oncelog.enabled` makes `enabled` a value of this chart, too."""
    values = {"oncelog": {**QUICK, "enabled": enabled}}
    rendered = umbrella(tmp_path, [dependency(condition="oncelog.enabled")], values)
    assert bool(rendered) is enabled


def test_two_aliases_in_one_release_have_separate_objects(tmp_path: Path) -> None:
    """Names and selectors come from the alias."""
    dependencies = [dependency(alias="east"), dependency(alias="west")]
    rendered = umbrella(tmp_path, dependencies, {"east": QUICK, "west": QUICK, "global": GLOBAL})
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(names) == len(set(names))
    selectors = [str(each["spec"]["selector"]) for each in rendered if each["kind"] == "StatefulSet"]
    assert len(selectors) == len(set(selectors)) == 8


def test_globals_of_the_umbrella_are_accepted_and_those_of_this_chart_are_used(tmp_path: Path) -> None:
    """An umbrella shares `global` among all its charts, so it holds values that this chart does not know."""
    rendered = umbrella(tmp_path, [dependency()], {"oncelog": QUICK, "global": GLOBAL})
    (owner,) = [
        each for each in rendered if (each["kind"], each["metadata"]["name"]) == ("StatefulSet", "live-oncelog-owner")
    ]
    pod = owner["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "plain"}, {"name": "mapped"}]
    assert pod["containers"][0]["image"].startswith("mirror.example/oncelog:")
