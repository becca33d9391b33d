"""The chaos tool reaches a cluster through one kubectl; what goes wrong says what was asked and answered."""

import json
import sys
from pathlib import Path

import pytest

from oncelog.lab.chaos.api_server import ApiServer, CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl

#: A kubectl whose proxy answers for one pod, refuses everything else, and dies when it is told to.
_KUBECTL = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
from urllib.parse import parse_qs, urlsplit

POD = "/api/v1/namespaces/here/pods/"
ASKED = []

class Proxy(BaseHTTPRequestHandler):
    def answer(self):
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size).decode()
        url = urlsplit(self.path)
        if url.path == POD + "deadly":
            os._exit(1)
        known = url.path in (POD + "one", POD[:-1], "/api/v1/nodes")
        ASKED.append([self.command, url.path, body])
        told = {{"asked": ASKED, "items": [parse_qs(url.query)]}}
        told = told if known else {{"kind": "Status", "message": "you may not"}}
        data = json.dumps(told).encode()
        self.send_response(200 if known else 403)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_POST = do_DELETE = answer
    address_string = lambda self: "a client"
    log_message = lambda self, *_: None

assert sys.argv[1:3] == ["proxy", "--unix-socket"], sys.argv
server = UnixStreamServer(sys.argv[3], Proxy)
print("Starting to serve", flush=True)
server.serve_forever()
"""


def kubectl_says(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "kubectl"
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


@pytest.mark.asyncio
async def test_objects_are_read_and_pods_made_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the paths of the API; a kill grants no time, as `kubectl delete --force --grace-period 0`."""
    kubectl_says(tmp_path, _KUBECTL.format(python=sys.executable), monkeypatch)
    async with ApiServer.reached() as api:
        kubectl = Kubectl("here", api)
        assert await kubectl.items("pods", "app=x") == [{"labelSelector": ["app=x"]}]
        assert await kubectl.nodes() == [{}]
        await kubectl.create("pods", {"kind": "Pod"})
        await kubectl.kill_pod("one")
        *_, made, killed, asked = (await kubectl.pod("one"))["asked"]
        assert asked == ["GET", "/api/v1/namespaces/here/pods/one", ""]
        assert made == ["POST", "/api/v1/namespaces/here/pods", '{"kind":"Pod"}']
        assert killed[:2] == ["DELETE", "/api/v1/namespaces/here/pods/one"]
        assert json.loads(killed[2])["gracePeriodSeconds"] == 0


@pytest.mark.asyncio
async def test_refusals_and_a_dead_proxy_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that could not be carried out is told as missed, in words; never taken for struck."""
    kubectl_says(tmp_path, _KUBECTL.format(python=sys.executable), monkeypatch)
    async with ApiServer.reached() as api:
        kubectl = Kubectl("here", api)
        with pytest.raises(CommandFailed, match=r"DELETE .*/pods/two answers 403: you may not"):
            await kubectl.kill_pod("two")
        with pytest.raises(CommandFailed, match=r"pods/deadly: the cluster's API does not answer"):
            await kubectl.pod("deadly")


@pytest.mark.asyncio
async def test_a_kubectl_that_is_missing_or_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is struck."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match="kubectl is not on the PATH"):
        await ApiServer.reached().__aenter__()
    kubectl_says(tmp_path, f"#!{sys.executable}\nimport sys; sys.exit('no such context')", monkeypatch)
    with pytest.raises(CommandFailed, match="`kubectl proxy` failed: no such context"):
        await ApiServer.reached().__aenter__()
