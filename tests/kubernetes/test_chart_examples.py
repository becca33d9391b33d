"""The chart's example jobs match the objects that the chart creates."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.kubernetes.chart import CHART, LOADER, NAMESPACE, Manifest, environment, rendered, spark_templates
from tests.kubernetes.test_chart_pipeline import MAIN, settings, understood, words_of_spark

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
#: Fields that the example uses, of those that the operator's API sparkoperator.k8s.io/v1beta2 has.
NEEDED = ("type", "sparkVersion", "mainApplicationFile", "driver", "executor")
KNOWN = {
    "spec": {*NEEDED, "pythonVersion", "mode", "image", "imagePullPolicy", "arguments", "restartPolicy", "sparkConf"},
    "restartPolicy": {"type", "onFailureRetryInterval", "onSubmissionFailureRetryInterval"},
    "driver": {"serviceAccount", "cores", "coreRequest", "memory", "memoryOverhead", "template"},
    "executor": {"serviceAccount", "cores", "coreRequest", "memory", "memoryOverhead", "template", "instances"},
}


def manifests(path: Path) -> list[Manifest]:
    return list(yaml.load_all(path.read_text(), Loader=LOADER))


def application() -> Manifest:
    (found,) = [each for each in manifests(CHART / "examples/spark-application.yaml") if each["kind"] != CLAIM]
    return dict(found["spec"])


CLAIM = "PersistentVolumeClaim"


def job() -> Manifest:
    (found,) = [each for each in manifests(CHART / "examples/client-mode.yaml") if each["kind"] != CLAIM]
    return dict(found)


def pods() -> Iterator[tuple[str, Manifest, Manifest]]:
    """(what it is, the example's pod, the chart's template of the same kind)."""
    templates = spark_templates("pipeline")
    yield "driver of the Job", job()["spec"]["template"], templates["driver.yaml"]
    yield "driver of the operator", application()["driver"]["template"], templates["driver.yaml"]
    yield "executor of the operator", application()["executor"]["template"], templates["executor.yaml"]


@pytest.mark.parametrize("which", [name for name, _, _ in pods()])
def test_pods_of_the_examples_match_those_of_the_chart(which: str) -> None:
    """The labels that policies select, the permissions, the services and credentials that they use, and the files."""
    ((own, made),) = [(own, made) for name, own, made in pods() if name == which]
    assert own["metadata"]["labels"] == made["metadata"]["labels"]
    for field in ("automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert own["spec"][field] == made["spec"][field], field
    (container,), (model,) = own["spec"]["containers"], made["spec"]["containers"]
    assert container["securityContext"] == model["securityContext"]
    assert environment(model).items() <= environment(container).items()
    assert {str(mount) for mount in model["volumeMounts"]} <= {str(mount) for mount in container["volumeMounts"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in own["spec"]["volumes"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_objects_named_in_examples_exist(path: Path) -> None:
    """Secrets, ConfigMaps, accounts and images are those of the release, claims those of the release or the example."""
    here = {each["metadata"]["name"] for each in manifests(path) if each["kind"] == CLAIM}
    there = {(each["kind"], each["metadata"]["name"]) for each in rendered("pipeline")}
    text = path.read_text()
    images = [value for key, value in scalars(manifests(path)) if key == "image"]
    theirs = {value for key, value in scalars(list(rendered("pipeline"))) if key == "image"}
    assert set(images) < {*theirs, settings("pipeline")["spark.kubernetes.container.image"]}
    assert images
    for key, value in scalars(manifests(path)):
        kind = {"secretName": "Secret", "serviceAccountName": "ServiceAccount", "serviceAccount": "ServiceAccount"}
        if key in kind:
            assert (kind[key], value) in there
        if key == "claimName":
            assert value in here or (CLAIM, value) in there
    assert f"namespace: {NAMESPACE}" in text


def scalars(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of everything that is neither a list nor a mapping."""
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from scalars(inner, name)
    elif isinstance(node, list):
        for inner in node:
            yield from scalars(inner, key)
    else:
        yield key, node


def test_arguments_of_example_jobs_are_valid() -> None:
    """As the command in the image parses them."""
    confs, words = words_of_spark(job()["spec"]["template"]["spec"]["containers"][0]["args"])
    for given, main in ((words[1:], words[0]), (application()["arguments"], application()["mainApplicationFile"])):
        assert main == MAIN
        assert given[0] == "copy"
        assert understood(given) == set()
    assert confs["--deploy-mode"] == "client"
    assert confs["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"


def test_ports_and_secrets_of_the_operators_job_are_those_of_the_chart() -> None:
    """Policies allow no other ports, and the job gets no properties file."""
    given = application()["sparkConf"]
    made = settings("pipeline")
    decided = {
        name for name in made if name.endswith("port") or name in {"spark.authenticate", "spark.port.maxRetries"}
    }
    assert {name: given[name] for name in decided - {"spark.ui.port"}} == {
        name: made[name] for name in decided - {"spark.ui.port"}
    }
    assert given.items() <= made.items()


def test_operator_job_has_known_fields_only() -> None:
    """The operator refuses an unknown field, or silently drops it."""
    spec = application()
    parts = {"spec": spec, **{name: spec[name] for name in KNOWN if name != "spec"}}
    assert {name: set(part) - KNOWN[name] for name, part in parts.items()} == {name: set() for name in KNOWN}
    assert set(NEEDED) <= set(spec)
    assert spec["restartPolicy"]["type"] in {"Never", "OnFailure", "Always"}
    assert all(isinstance(value, str) for value in spec["sparkConf"].values())
    made = settings("pipeline")
    for part in ("driver", "executor"):
        sizes = {name: made[f"spark.{part}.{name}"] for name in ("memory", "memoryOverhead")}
        assert {name: spec[part][name] for name in sizes} == sizes, part


def test_examples_are_valid_in_kubernetes() -> None:
    """The operator's pods are validated as pods: Spark fills in image and command."""
    latest = kubernetes_validate.latest_version()
    for path in EXAMPLES:
        for manifest in manifests(path):
            if manifest["kind"] != "SparkApplication":
                kubernetes_validate.validate(manifest, latest, strict=True)
    for part in ("driver", "executor"):
        pod = {"apiVersion": "v1", "kind": "Pod", **application()[part]["template"]}
        pod["metadata"] = {"name": part, **pod["metadata"]}
        kubernetes_validate.validate(pod, latest, strict=True)
