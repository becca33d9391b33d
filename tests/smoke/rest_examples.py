"""docs/rest.md against the installed release: through its Service, with the CA and the tokens of its Secrets.

The commands are given to curl, word for word, where there is one; else httpx sends the same.
"""

import base64
import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from oncelog.runtime.tokens import TokenKey
from tests.cluster.until import until_sync
from tests.contract.rest.rest_story import ADMIN, CHECKOUT, Curl, Httpx, run_story, write_options
from tests.smoke.release import RELEASE, Release

FORWARDED_S = 30.0
REST_PORT, HEALTH_PORT = 8080, 8081
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")


def run_examples(release: Release, directory: Path) -> int:
    """The number of examples; all of them were answered as written."""
    secrets = {name: _secret(release, f"{RELEASE}-{name}") for name in ("tls", "auth")}
    (directory / "ca.crt").write_bytes(secrets["tls"]["ca.crt"])
    tokens = {
        ADMIN: secrets["auth"]["admin-token"].decode().strip(),
        CHECKOUT: TokenKey.of(secrets["auth"]["key"].strip()).issue(CHECKOUT, expires_s=3600),
    }
    with _forwarded(release, directory / "port-forward.log") as ports:
        rest = ports[REST_PORT]
        write_options(directory, tokens, 'cacert = "ca.crt"', f'resolve = "oncelog:{rest}:127.0.0.1"')
        addresses = {"REST": f"https://oncelog:{rest}", "HEALTH": f"http://127.0.0.1:{ports[HEALTH_PORT]}"}
        if shutil.which("curl"):
            count, by = run_story(Curl(directory), addresses), "curl"
        else:
            with Httpx(directory) as send:
                count, by = run_story(send, addresses), "httpx"
    print(f"{count} examples of docs/rest.md, by {by}: each is answered as it is written")
    return count


def _secret(release: Release, name: str) -> dict[str, bytes]:
    """The contents of the Secret, which are not printed."""
    words = ["kubectl", "--namespace", release.namespace, "get", "secret", name, "-o", "json"]
    found = subprocess.run(words, capture_output=True, timeout=60, check=True).stdout
    return {key: base64.b64decode(value) for key, value in json.loads(found)["data"].items()}


@contextlib.contextmanager
def _forwarded(release: Release, log: Path) -> Iterator[dict[int, int]]:
    """{port of a metadata pod: local port} inside the block."""
    words = ["kubectl", "--namespace", release.namespace, "port-forward", f"deployment/{RELEASE}-metadata"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*words, f":{REST_PORT}", f":{HEALTH_PORT}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def ports() -> dict[int, int]:
        assert process.poll() is None, log.read_text()
        found = {int(there): int(here) for here, there in _FORWARDING.findall(log.read_text())}
        return found if found.keys() == {REST_PORT, HEALTH_PORT} else {}

    try:
        yield until_sync(ports, FORWARDED_S, waiting_for="kubectl port-forward")
    finally:
        process.terminate()
        process.wait(FORWARDED_S)
