"""Alerts and dashboard use only metrics that the services emit."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache

from oncelog.runtime.telemetry import Telemetry
from tests.kubernetes.chart import CHART, Manifest, of_kind, one
from tests.tidy.source import PRODUCT, repository
from tests.tidy.test_documents import wrong_with

_NAME = re.compile(r"\boncelog_\w+")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_INSTRUMENT = re.compile(r"\.(observe_count|observe_level|latency)\(")
#: A command of the command line, up to the verb of the sentence.
_COMMAND = re.compile(r"The command oncelog (.*?) (?:shows|lists|succeeds)")
#: Labels that Prometheus adds, by the ServiceMonitor or by itself.
_ADDED = {
    "statefulset",
    "namespace",
    "pod",
    "app_kubernetes_io_instance",
    "app_kubernetes_io_component",
    "le",
    "cronjob",
}


@cache
def emitted() -> frozenset[str]:
    """Names at /metrics: each instrument of the code is created here, and named as in Prometheus' text format."""
    telemetry = Telemetry("test", "1")
    for source in repository():
        if source.is_python and source.inside(*PRODUCT) and _INSTRUMENT.search(source.text):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                    _make(telemetry, node.func.attr, node.args[0])
    text = telemetry.metrics_text().decode()
    telemetry.shut_down()
    return frozenset(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))


def _make(telemetry: Telemetry, method: str, name: ast.expr) -> None:
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return
    match method:
        case "observe_count":
            telemetry.observe_count(name.value, "", lambda: 1)
        case "observe_level":
            telemetry.observe_level(name.value, "", lambda: 1)
        case "latency":
            telemetry.latency(name.value, "").record(1)


def rules() -> list[Manifest]:
    """Of two releases that have everything together."""
    return [*{rule["alert"]: rule for name in ("pipeline", "everything") for rule in rules_of(name)}.values()]


def rules_of(name: str) -> list[Manifest]:
    (manifest,) = of_kind(name, "PrometheusRule")
    found = [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found)
    return found


def panels() -> list[Manifest]:
    found: list[Manifest] = json.loads((CHART / "dashboards/oncelog.json").read_text())["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in panels():
        yield from (target["expr"] for target in panel.get("targets", []))


def test_each_series_is_emitted() -> None:
    """An alert on a metric that no service emits never fires, and the error stays unnoticed."""
    asked = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert len(asked) > 25
    assert asked - emitted() == set()


def test_each_series_is_shown() -> None:
    """The dashboard shows every metric of the services, except the components of histograms."""
    shown = {
        name for panel in panels() for target in panel.get("targets", []) for name in _NAME.findall(target["expr"])
    }
    plain = {name for name in emitted() if name.startswith("oncelog_") and not name.endswith(("_sum", "_count"))}
    assert plain - shown == set()


def test_each_label_is_set_by_the_code() -> None:
    """Its key and its value occur in the code of the services as whole words."""
    code = "\n".join(source.text for source in repository() if source.is_python and source.inside(*PRODUCT))
    for expression in expressions():
        for matchers in _MATCHERS.findall(expression):
            for key, value in re.findall(r'(\w+)!?=~?"([^"]*)"', matchers):
                if key not in _ADDED:
                    assert f'"{key}"' in code, expression
                    assert f'"{value}"' in code, expression


def test_each_expression_selects_this_release_only() -> None:
    """One Prometheus that monitors two clusters must not mix their figures."""
    for expression in expressions():
        for series in re.findall(r"oncelog_\w+(.?)", expression):
            assert series == "{", expression
        for matchers in _MATCHERS.findall(expression):
            assert "namespace=" in matchers, expression
            if "kube_" not in expression:  # these labels name an object of the release
                assert "app_kubernetes_io_instance=" in matchers, expression


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    """For the operator on call."""
    assert len(rules()) >= 8
    for rule in rules():
        only_forbids = rule["alert"] == "OncelogDoNotReplaceStorage"
        assert rule["labels"]["severity"] in ({"info"} if only_forbids else {"warning", "critical"})
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")


def test_disk_that_fills_is_reported_before_the_node_is_read_only_and_not_while_half_is_free() -> None:
    """A node takes no new messages below freeBytesMin, so 0 is never reached. A few new segments in the first hours of
    a cluster look like a volume that is full tomorrow."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "OncelogStorageFullSoon"]
    predicted, free = rule["expr"].split(" and ")
    assert predicted.startswith("predict_linear(oncelog_storage_free_bytes{")
    assert predicted.endswith("[6h], 86400) < 5368709120")
    assert free.endswith(f"}} < {(1 << 40) // 2}")


def test_commands_in_alerts_exist() -> None:
    """With their options; NODE stands for an argument."""
    commands = [found for rule in rules() for found in _COMMAND.findall(rule["annotations"]["description"])]
    assert len(commands) >= 5
    assert [wrong for words in commands if (wrong := wrong_with(words.split()))] == []


def test_dashboard_is_complete() -> None:
    """In a ConfigMap with the label that Grafana selects; panels neither overlap nor share an id."""
    manifest = one("everything", "ConfigMap", "oncelog-dashboard")
    assert json.loads(manifest["data"]["oncelog.json"])["panels"] == panels()
    assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_prometheus_finds_the_health_port_of_each_component() -> None:
    """By the labels of the Services, on a port that they have."""
    (monitor,) = of_kind("everything", "ServiceMonitor")
    spec = monitor["spec"]
    (expression,) = spec["selector"]["matchExpressions"]
    found = set()
    for service in of_kind("everything", "Service"):
        labels = service["metadata"]["labels"]
        if (
            spec["selector"]["matchLabels"].items() <= labels.items()
            and labels[expression["key"]] in expression["values"]
        ):
            ports = {port["name"] for port in service["spec"]["ports"]}
            found |= {labels[expression["key"]]} if "health" in ports else set()
    assert found == {"metadata", "owner", "storage"}


def test_prometheus_finds_relays_mirrors_and_doors_by_their_pods() -> None:
    """No Service has their health port."""
    (monitor,) = of_kind("everything", "PodMonitor")
    spec = monitor["spec"]
    (expression,) = spec["selector"]["matchExpressions"]
    (endpoint,) = spec["podMetricsEndpoints"]
    found = set()
    for deployment in of_kind("everything", "Deployment"):
        pod = deployment["spec"]["template"]
        labels = pod["metadata"]["labels"]
        if (
            spec["selector"]["matchLabels"].items() <= labels.items()
            and labels[expression["key"]] in expression["values"]
        ):
            ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
            assert endpoint["port"] in ports
            found.add(labels[expression["key"]])
    assert found == {"door", "relay", "mirror-orders", "mirror-shop"}
    assert list(of_kind("dev", "PodMonitor")) == []


def test_alerts_watch_relays_mirrors_doors_and_backups_where_there_are_any() -> None:
    pattern = "Oncelog(Mirror|Relay|Backup|Door|NoDoor)"

    def about(name: str) -> set[str]:
        return {alert for rule in rules_of(name) if re.match(pattern, alert := rule["alert"])}

    assert about("production") == set()
    assert {"OncelogMirrorDown", "OncelogMirrorFailed", "OncelogMirrorBehind", "OncelogRelayDown"} <= about(
        "everything"
    )
    assert {"OncelogNoDoor", "OncelogDoorConnectionsRefused", "OncelogDoorEntriesUndeliverable"} <= about("everything")
    assert {"OncelogBackupFailing", "OncelogRelayRowsRefused"} <= about("pipeline")
    (down,) = [rule["expr"] for rule in rules() if rule["alert"] == "OncelogMirrorDown"]
    assert re.findall('component="(.*?)"', down) == ["mirror-orders", "mirror-shop"]
