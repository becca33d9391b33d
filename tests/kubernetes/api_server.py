"""The part of the Kubernetes API that Helm's `lookup` uses: single objects of some kinds.

with answering({"secrets/mine": {"data": {}}}) as kubeconfig: template("--dry-run=server", "--kubeconfig", kubeconfig)
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.chart import NAMESPACE

#: Plural of each kind that can be requested.
KINDS = {"secrets": "Secret", "configmaps": "ConfigMap"}
APPS_KINDS = {"statefulsets": "StatefulSet", "deployments": "Deployment"}
BATCH_KINDS = {"jobs": "Job"}
_ABSENT = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


def _answer(path: str, objects: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """path: of the request. objects: by `plural/name`, all in the tests' namespace."""
    versions = (
        ("/api/v1", "v1", KINDS), ("/apis/apps/v1", "apps/v1", APPS_KINDS), ("/apis/batch/v1", "batch/v1", BATCH_KINDS),
    )  # fmt: skip
    for root, version, kinds in versions:
        if path == root:
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [_resource(plural, kind) for plural, kind in kinds.items()],
            }
        wanted = path.removeprefix(f"{root}/namespaces/{NAMESPACE}/")
        plural, _, name = wanted.partition("/")
        if wanted in objects and plural in kinds:
            return {"apiVersion": version, "kind": kinds[plural], "metadata": {"name": name}, **objects[wanted]}
    return _ABSENT


def _resource(plural: str, kind: str) -> Mapping[str, Any]:
    return {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]}


@contextmanager
def answering(objects: Mapping[str, Mapping[str, Any]], directory: Path) -> Iterator[str]:
    """The path of a kubeconfig, written to `directory`, for a server that has these objects."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(self.path.partition("?")[0], objects)
            body = json.dumps(answer).encode()
            self.send_response(answer.get("code", 200))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        cluster = {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
        users = [{"name": "fake", "user": {}}]
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": users}
        path = directory / "kubeconfig"
        path.write_text(yaml.safe_dump({**config, "current-context": "fake"}))
        yield str(path)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
