"""A release in Kubernetes as `kubectl get` shows it: pure readings of pods, nodes and services."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncelog.core.address import split_address
from oncelog.lab.chaos.schedule import Part, spare

Object = Mapping[str, Any]

_CHAOS_LABELS: Object = {"app.kubernetes.io/component": "chaos"}
#: Of the bystander's pods and of their Service.
BYSTANDER_LABEL = "oncelog-bystander"
_BYSTANDER_PORT = 8080
#: To start is to import: that is where the processor's time of a metadata service's start goes.
_BYSTANDER = f"""
import asyncio
import oncelog.metadata.service
async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), port={_BYSTANDER_PORT})
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Pod:
    """container: id of its first container as the node knows it; that and its ip are empty before it runs."""

    name: str
    uid: str
    part: Part
    node: str
    ready: bool
    container: str
    ip: str = ""

    def is_at(self, address: str) -> bool:
        """Whether "host:port" is its own: by its IP, or by the name that a StatefulSet gives it."""
        host, _ = split_address(address)
        return host == self.ip or host.partition(".")[0] == self.name


def pods_of(items: Iterable[Object]) -> list[Pod]:
    """The pods that are members of a part; those that are ending are not."""
    known = {str(part) for part in Part}
    found = []
    for item in items:
        metadata, status = item["metadata"], item.get("status", {})
        component = metadata.get("labels", {}).get("app.kubernetes.io/component")
        if (
            component not in known
            or metadata.get("deletionTimestamp")
            or status.get("phase") in {"Succeeded", "Failed"}
        ):
            continue
        containers = status.get("containerStatuses") or [{}]
        found.append(
            Pod(
                metadata["name"],
                metadata["uid"],
                Part(component),
                item["spec"].get("nodeName", ""),
                is_ready(item),
                str(containers[0].get("containerID", "")).rpartition("/")[2],
                str(status.get("podIP", "")),
            )
        )
    return found


def is_ready(item: Object) -> bool:
    """Whether a pod, or a node, says so."""
    conditions = {each["type"]: each["status"] for each in item.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True"


def count_parts(pods: Iterable[Pod]) -> dict[Part, int]:
    counted = Counter(pod.part for pod in pods)
    return {part: counted[part] for part in Part if counted[part]}


def nodes_within_budget(pods: Sequence[Pod], *, without: str) -> list[str]:
    """Nodes whose loss every quorum survives, and that carry something. without: where the workload runs."""
    left = spare(count_parts(pods))
    found = []
    for node in sorted({pod.node for pod in pods if pod.node and pod.node != without}):
        there = count_parts(pod for pod in pods if pod.node == node)
        if all(count <= left[part] for part, count in there.items()):
            found.append(node)
    return found


def unwell_nodes(items: Iterable[Object]) -> list[str]:
    """Nodes that are not ready, or take no pods."""
    unwell = (item for item in items if not is_ready(item) or item["spec"].get("unschedulable"))
    return sorted(str(item["metadata"]["name"]) for item in unwell)


def workload_manifest(
    name: str, metadata_pod: Object, service: str, namespace: str, arguments: Sequence[str]
) -> Object:
    """A pod with the release's own image and Secrets that runs the workload; no Service sends anything to it."""
    container = metadata_pod["spec"]["containers"][0]
    variables = {each["name"] for each in container.get("env", [])}
    tls, auth = "ONCELOG_TLS_CA_FILE" in variables, "ONCELOG_AUTH_KEY_FILE" in variables
    host = f"{service}.{namespace}.svc"
    env = {
        "ONCELOG_URL": f"oncelog{'+tls' if tls else ''}://{host}:6650",
        "ONCELOG_ADMIN_URL": f"http{'s' if tls else ''}://{host}:8080",
        "GRPC_VERBOSITY": "NONE",  # it would tell of every connection that ends, and here they are meant to
    }
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - in the pod
    known = metadata_pod["spec"].get("volumes", [])
    secrets = {each["name"]: each["secret"]["secretName"] for each in known if "secret" in each}
    for wanted, volume, key, variable in (
        (tls, "tls", "ca.crt", "ONCELOG_TLS_CA_FILE"),
        (auth, "auth", "admin-token", "ONCELOG_TOKEN_FILE"),
    ):
        if wanted:
            secret = {"secretName": secrets[volume], "defaultMode": 0o440, "items": [{"key": key, "path": key}]}
            volumes.append({"name": volume, "secret": secret})
            mounts.append({"name": volume, "mountPath": f"/etc/oncelog/{volume}", "readOnly": True})
            env[variable] = f"/etc/oncelog/{volume}/{key}"
    load = {
        "name": "workload",
        "command": ["python3", "-m", "oncelog.cli", "chaos", "workload", *arguments],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": mounts,
    }
    return _like_metadata(name, metadata_pod, load, volumes=volumes)


def bystander_manifest(name: str, service: str, metadata_pod: Object) -> Object:
    """A pod that starts as a metadata service does and asks for as much, then listens, and serves nobody.

    service: see `bystander_service`.
    """
    starter = {
        "name": "bystander",
        "command": ["python3", "-c", _BYSTANDER],
        "resources": metadata_pod["spec"]["containers"][0].get("resources", {}),
        "readinessProbe": {"tcpSocket": {"port": _BYSTANDER_PORT}, "periodSeconds": 2},
    }
    made = _like_metadata(name, metadata_pod, starter, terminationGracePeriodSeconds=0)
    return {**made, "metadata": {"name": name, "labels": {**_CHAOS_LABELS, BYSTANDER_LABEL: service}}}


def bystander_service(name: str) -> Object:
    """The Service in front of the bystander: each of its ends and starts is told to every node, as a member's is."""
    port = {"name": "none", "port": _BYSTANDER_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {**_CHAOS_LABELS, BYSTANDER_LABEL: name}},
        "spec": {"selector": {BYSTANDER_LABEL: name}, "ports": [port]},
    }


def _like_metadata(name: str, metadata_pod: Object, container: Object, **spec: object) -> Object:
    """A pod of one container, allowed where a metadata service is: with its image, its security and its tolerations."""
    known, model = metadata_pod["spec"], metadata_pod["spec"]["containers"][0]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": _CHAOS_LABELS},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": known.get("securityContext", {}),
            "tolerations": known.get("tolerations", []),
            "imagePullSecrets": known.get("imagePullSecrets", []),
            "containers": [
                {
                    "image": model["image"],
                    "imagePullPolicy": model.get("imagePullPolicy", "IfNotPresent"),
                    "securityContext": model.get("securityContext", {}),
                    **container,
                }
            ],
            **spec,
        },
    }


def pause_manifest(name: str, victim: Pod, image: Object, seconds: float) -> Object:
    """A pod beside the victim that sees its node's processes and may send them signals, and nothing else."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": _CHAOS_LABELS},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "hostPID": True,
            "nodeName": victim.node,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 10,
            "containers": [
                {
                    "name": "pause",
                    "image": image["image"],
                    "imagePullPolicy": image.get("imagePullPolicy", "IfNotPresent"),
                    "command": ["python3", "-m", "oncelog.cli", "chaos", "stop-container"],
                    "args": ["--container", victim.container, "--seconds", str(seconds)],
                    # Without, a busy node would let it start a minute too late.
                    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
                    "securityContext": {
                        "runAsUser": 0,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"], "add": ["KILL"]},
                    },
                }
            ],
        },
    }
