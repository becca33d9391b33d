"""The chart as helm renders it: once for each values file, shared by all tests.

helm comes from the Python package helm-binary; no test here uses a cluster or the network.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from oncelog.runtime.settings import LogStorageSettings, MetadataSettings, ProcessSettings, TopicOwnerSettings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/oncelog"
HELM = ROOT / ".venv/bin/helm"
VALUES = Path(__file__).parent / "values"
RELEASE, NAMESPACE = "oncelog", "logs"
TIMEOUT_S = 60

#: The loader in C is ten times as fast, if it is installed.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Manifest = dict[str, Any]
#: Values files by the name that tests are shown under; "default" is the chart as it is.
FILES: Mapping[str, Path] = {
    "default": CHART / "values.yaml",
    "dev": CHART / "values-dev.yaml",
    "production": CHART / "values-production.yaml",
    **{path.stem: path for path in sorted(VALUES.glob("*.yaml"))},
}
#: The settings class of each component.
SETTINGS: Mapping[str, type[ProcessSettings]] = {
    "metadata": MetadataSettings,
    "owner": TopicOwnerSettings,
    "storage": LogStorageSettings,
}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm to its end, with any exit code."""
    command = (str(HELM), *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def template(*words: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart, with further arguments."""
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *words)


def manifests_in(rendering: str) -> list[Manifest]:
    """What helm has rendered, without the templates that are empty."""
    return [each for each in yaml.load_all(rendering, Loader=LOADER) if each]


@cache
def rendered(name: str) -> tuple[Manifest, ...]:
    """Everything that an install with this values file would create, hooks included."""
    done = template("--values", str(FILES[name]))
    assert done.returncode == 0, done.stderr
    return tuple(manifests_in(done.stdout))


@cache
def values_of(name: str) -> Manifest:
    """The values that hold with this file: the chart's own, and the file's above them."""
    own = yaml.load(FILES["default"].read_text(), Loader=LOADER)
    given = yaml.load(FILES[name].read_text(), Loader=LOADER) or {}
    return _merged(own, given)


def _merged(below: Manifest, above: Manifest) -> Manifest:
    both = {key for key in below if isinstance(below[key], dict) and isinstance(above.get(key), dict)}
    return {**below, **above, **{key: _merged(below[key], above[key]) for key in both}}


@cache
def schema() -> Manifest:
    return cast("Manifest", json.loads((CHART / "values.schema.json").read_text()))


def of_kind(name: str, *kinds: str) -> list[Manifest]:
    return [each for each in rendered(name) if each["kind"] in kinds]


def one(name: str, kind: str, manifest_name: str) -> Manifest:
    """The only manifest of this kind and name."""
    (found,) = [each for each in of_kind(name, kind) if each["metadata"]["name"] == manifest_name]
    return found


def component(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def workloads(name: str) -> list[Manifest]:
    return of_kind(name, "StatefulSet", "Deployment")


def pod_templates(name: str) -> Iterator[tuple[str, Manifest]]:
    """(component, pod) of every workload, of the test, and of those that Spark makes."""
    for manifest in workloads(name):
        yield component(manifest), manifest["spec"]["template"]
    for manifest in [*of_kind(name, "Pod"), *spark_templates(name).values()]:
        yield component(manifest), manifest


def spark_files(name: str) -> dict[str, str]:
    """{file: text} of the pipeline's ConfigMap for Spark; empty: there is none."""
    found = [each["data"] for each in of_kind(name, "ConfigMap") if each["metadata"]["name"] == f"{RELEASE}-pipeline"]
    return found[0] if found else {}


def spark_templates(name: str) -> dict[str, Manifest]:
    """{file: pod} that Spark makes its drivers and executors of."""
    files = {path: text for path, text in spark_files(name).items() if path in {"driver.yaml", "executor.yaml"}}
    return {path: yaml.load(text, Loader=LOADER) for path, text in files.items()}


def containers(name: str) -> Iterator[tuple[str, Manifest]]:
    for part, pod in pod_templates(name):
        for each in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            yield part, each


def environment(container: Manifest) -> dict[str, str]:
    """Its variables as a pod would see them; what Kubernetes fills in stands as <field>."""
    seen: dict[str, str] = {}
    for each in container.get("env", []):
        value = each.get("value")
        if value is None:
            (source,) = each["valueFrom"].values()
            value = f"<{source.get('fieldPath') or source.get('key')}>"
        for earlier, text in seen.items():
            value = value.replace(f"$({earlier})", text)
        assert each["name"] not in seen, f"{each['name']} is given twice"
        seen[each["name"]] = value
    return seen
