"""One release of the chart in the current kube context, in a separate namespace.

IMAGES names a values file with the images' names: `make images ARCHIVE=DIR` writes one beside the archives, which a
cluster without a registry has to load first. Without it the chart's own names hold.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.chart import CHART, HELM

RELEASE = "oncelog"
VALUES = Path(__file__).parent / "values.yaml"
CALL_TIMEOUT_S = 300.0
CHAOS_TIMEOUT_S = 600.0


def run(command: Sequence[str], *, timeout_s: float = CALL_TIMEOUT_S, stdin: bytes = b"") -> str:
    """Run a command, print its output, and return its standard output. Raises AssertionError if it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, input=stdin)
    output, errors = done.stdout.decode(), done.stderr.decode()
    sys.stdout.write(output[-4000:] + errors[-4000:])
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {(errors or output)[-2000:]}"
    return output


class Release:
    """The operations that the tests use."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def helm(self, *words: str) -> str:
        return run([str(HELM), *words, "--namespace", self.namespace])

    def kubectl(self, *words: str, stdin: bytes = b"") -> str:
        assert shutil.which("kubectl"), "kubectl is missing: install it, and choose a context"
        return run(["kubectl", "--namespace", self.namespace, *words], stdin=stdin)

    def values(self) -> list[str]:
        """The arguments for helm that name the values files."""
        files = [str(VALUES), *filter(None, [os.environ.get("IMAGES")])]
        return [word for file in files for word in ("--values", file)]

    def install(self, *words: str) -> None:
        command = ["install", RELEASE, str(CHART), "--create-namespace", "--wait", "--timeout", "180s"]
        self.helm(*command, *self.values(), *words)

    def upgrade(self) -> list[str]:
        """The command that upgrades the release to the same chart and values, and waits."""
        words = ["upgrade", RELEASE, str(CHART), "--namespace", self.namespace, "--wait", "--timeout", "240s"]
        return [str(HELM), *words, *self.values()]

    def oncelog(self, *words: str, stdin: bytes = b"") -> str:
        """Run `oncelog` in a pod of the release: through its Services, with its token and CA."""
        return self.kubectl("exec", "-i", f"deploy/{RELEASE}-metadata", "--", "oncelog", *words, stdin=stdin)

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return found

    def chaos(self, *words: str) -> None:
        """Faults under load with the local kubectl: each planned fault was injected, and nothing was lost.

        words: of `oncelog chaos run`, --kinds first."""
        oncelog = str(CHART.parents[2] / ".venv/bin/oncelog")
        place = ("--namespace", self.namespace, "--release", RELEASE, "-o", "json")
        verdict = json.loads(run([oncelog, "chaos", "run", *words, *place], timeout_s=CHAOS_TIMEOUT_S).splitlines()[-1])
        assert (verdict["lost"], verdict["duplicated"], verdict["out_of_order"]) == (0, 0, 0), verdict
        assert verdict["acked"] > 0
        assert {fault["kind"] for fault in verdict["faults"]} == set(words[1].split(",")), verdict
        assert json.loads(self.oncelog("admin", "topics", "list", "public/chaos", "-o", "json")) == []

    def kinds_left(self) -> set[str]:
        """Kinds of objects with the release's label."""
        listed = self.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        names = ",".join(name for name in listed if "metrics.k8s.io" not in name and not name.startswith("events"))
        found = json.loads(
            self.kubectl("get", names, "-o", "json", "--selector", f"app.kubernetes.io/instance={RELEASE}")
        )
        return {item["kind"] for item in found["items"]}
