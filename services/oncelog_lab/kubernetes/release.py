"""A release in Kubernetes: what its objects tell, and manifests of the pods that chaos creates. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncelog.core.address import split_address
from oncelog_lab.faults.kinds import Component, spare_members

Object = Mapping[str, Any]

_CHAOS_LABELS: Object = {"app.kubernetes.io/component": "chaos"}
#: Label of the control pods and of their Service.
CONTROL_POD_LABEL = "oncelog-control-pod"
_CONTROL_POD_PORT = 8080
#: Imports what a metadata service imports: most of the CPU time of its start goes there.
_CONTROL_POD = f"""
import asyncio
import oncelog.metadata.service
async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), port={_CONTROL_POD_PORT})
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Pod:
    """container: id of its first container on the node. container and ip are empty before the pod runs."""

    name: str
    uid: str
    component: Component
    node: str
    ready: bool
    container: str
    ip: str = ""

    def is_at(self, address: str) -> bool:
        """Whether "host:port" is the pod's: by its IP, or by the host name that a StatefulSet gives it."""
        host, _ = split_address(address)
        return host == self.ip or host.partition(".")[0] == self.name


def pods_of(items: Iterable[Object]) -> list[Pod]:
    """The pods that are members of a component, without those that are ending."""
    known = {str(component) for component in Component}
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
                Component(component),
                item["spec"].get("nodeName", ""),
                is_ready(item),
                str(containers[0].get("containerID", "")).rpartition("/")[2],
                str(status.get("podIP", "")),
            )
        )
    return found


def is_ready(item: Object) -> bool:
    """Whether the condition Ready of a pod or a node is true."""
    conditions = {each["type"]: each["status"] for each in item.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True"


def count_components(pods: Iterable[Pod]) -> dict[Component, int]:
    counted = Counter(pod.component for pod in pods)
    return {component: counted[component] for component in Component if counted[component]}


def nodes_within_budget(pods: Sequence[Pod], *, without: str) -> list[str]:
    """Nodes with members whose loss every quorum survives. without: the node of the workload."""
    spare = spare_members(count_components(pods))
    found = []
    for node in sorted({pod.node for pod in pods if pod.node and pod.node != without}):
        there = count_components(pod for pod in pods if pod.node == node)
        if all(count <= spare[component] for component, count in there.items()):
            found.append(node)
    return found


def unhealthy_nodes(items: Iterable[Object]) -> list[str]:
    """Nodes that are not ready or not schedulable."""
    unhealthy = (item for item in items if not is_ready(item) or item["spec"].get("unschedulable"))
    return sorted(str(item["metadata"]["name"]) for item in unhealthy)


def workload_manifest(
    name: str, metadata_pod: Object, service: str, namespace: str, arguments: Sequence[str]
) -> Object:
    """The pod of the workload, with the image and the Secrets of the release. No Service selects it."""
    container = metadata_pod["spec"]["containers"][0]
    variables = {each["name"] for each in container.get("env", [])}
    tls, auth = "ONCELOG_TLS_CA_FILE" in variables, "ONCELOG_AUTH_KEY_FILE" in variables
    host = f"{service}.{namespace}.svc"
    env = {
        "ONCELOG_URL": f"oncelog{'+tls' if tls else ''}://{host}:6650",
        "ONCELOG_ADMIN_URL": f"http{'s' if tls else ''}://{host}:8080",
        "GRPC_VERBOSITY": "NONE",  # by default gRPC reports every connection that ends
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


def control_pod_manifest(name: str, service: str, metadata_pod: Object) -> Object:
    """A pod with the start-up and the requests of a metadata service, without clients.

    service: name of the Service in front of it, see `control_pod_service`.
    """
    starter = {
        "name": "control-pod",
        "command": ["python3", "-c", _CONTROL_POD],
        "resources": metadata_pod["spec"]["containers"][0].get("resources", {}),
        "readinessProbe": {"tcpSocket": {"port": _CONTROL_POD_PORT}, "periodSeconds": 2},
    }
    made = _like_metadata(name, metadata_pod, starter, terminationGracePeriodSeconds=0)
    return {**made, "metadata": {"name": name, "labels": {**_CHAOS_LABELS, CONTROL_POD_LABEL: service}}}


def control_pod_service(name: str) -> Object:
    """The Service in front of the control pod, so that each end and start is sent to every node, as for a member."""
    port = {"name": "none", "port": _CONTROL_POD_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {**_CHAOS_LABELS, CONTROL_POD_LABEL: name}},
        "spec": {"selector": {CONTROL_POD_LABEL: name}, "ports": [port]},
    }


def _like_metadata(name: str, metadata_pod: Object, container: Object, **spec: object) -> Object:
    """A pod of one container with the image, the security context and the tolerations of a metadata service."""
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
    """A pod on the node of the victim that may send signals to the processes there, and nothing else."""
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
                    # Without requests, a busy node would start the pod a minute too late.
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
