"""A release with the pipeline, Spark's own view of a job that runs there, and the kills.

Spark's web UI is read through the API server; it shows whether a task runs.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.until import until_sync
from tests.smoke.release import RELEASE, Release

VALUES = Path(__file__).parent / "values.yaml"
ROLE = "oncelog-pipeline"
SOURCES = "public/default"
COPIES = "public/copies"
ASK_TIMEOUT_S = 60.0
JOB_STARTS_S = 900.0
JOB_ENDS_S = 1200.0
KILLS_MAX = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """The messages of a topic, compared with the lines that were published."""

    messages: int
    lost: int
    duplicated: int
    out_of_order: int


class SparkRelease(Release):
    """One release with the pipeline; jobs are submitted to it in several ways."""

    def values(self) -> list[str]:
        return ["--values", str(VALUES), *super().values()[2:]]

    def ask(self, *words: str) -> str | None:
        """The output of kubectl; None: it failed or timed out, as while a pod starts or ends."""
        command = ["kubectl", "--namespace", self.namespace, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def publish(self, topic: str, lines: Sequence[str]) -> None:
        """Publish a file with a named producer, into `public/default`."""
        path = f"/tmp/{topic}"
        write = f"import sys; open({path!r}, 'wb').write(sys.stdin.buffer.read())"
        pod = f"deploy/{RELEASE}-metadata"
        text = "".join(f"{line}\n" for line in lines).encode()
        self.kubectl("exec", "-i", pod, "--", "python", "-c", write, stdin=text)
        self.oncelog("produce", f"{SOURCES}/{topic}", "--from-file", path, "--producer-name", "importer")

    def stored(self, topic: str) -> int:
        """Messages in a topic of `public/copies`; 0: it does not exist or is not served yet."""
        words = ("exec", f"deploy/{RELEASE}-metadata", "--", "oncelog", "admin", "topics", "stats")
        said = self.ask(*words, f"{COPIES}/{topic}", "-o", "json")
        return 0 if said is None else int(json.loads(said).get("message_count", 0))

    def compare(self, topic: str, expected: dict[str, list[str]]) -> Copied:
        """expected: {source topic: its values in order}. A row names its source in its producer."""
        words = ["kubectl", "--namespace", self.namespace, "exec", f"deploy/{RELEASE}-metadata", "--"]
        command = [*words, "oncelog", "read", f"{COPIES}/{topic}", "-o", "json"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
        found: dict[str, list[str]] = {name: [] for name in expected}
        for line in said.splitlines():
            message = json.loads(line)
            found[message["producer_name"].rpartition("/")[2].partition("#")[0]].append(message["value"])
        lost = sum(((Counter(values) - Counter(found[name])).total()) for name, values in expected.items())
        duplicated = sum(((Counter(found[name]) - Counter(values)).total()) for name, values in expected.items())
        disordered = sum(found[name] != values for name, values in expected.items())
        return Copied(sum(map(len, found.values())), lost, duplicated, disordered)

    def spark_files(self) -> dict[str, str]:
        """{name: text} of the pipeline's ConfigMap."""
        found: dict[str, str] = json.loads(self.kubectl("get", "configmap", ROLE, "-o", "json"))["data"]
        return found

    def manifests(self, example: Path) -> list[dict[str, Any]]:
        """An example of the chart, for this namespace."""
        text = example.read_text().replace("namespace: logs", f"namespace: {self.namespace}")
        return list(yaml.safe_load_all(text.replace(".logs.svc", f".{self.namespace}.svc")))

    def apply(self, manifests: Sequence[dict[str, Any]]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests).encode())


@dataclass(frozen=True, slots=True)
class Loss:
    """A lost executor: tasks that it was given, and of these the completed and the failed ones."""

    tasks: int
    completed: int
    failed: int
    reason: str


class Watched:
    """A running job: its driver, its executors, and the kills. selector: of its driver's pods."""

    def __init__(self, release: SparkRelease, selector: str, topic: str) -> None:
        self.release = release
        self.selector = selector
        self.topic = topic
        self._driver: str | None = None
        self._application = ""

    def driver(self) -> str | None:
        """The running pod; None: there is none now."""
        said = self.release.ask("get", "pods", "--selector", self.selector, "-o", "json")
        pods = [] if said is None else json.loads(said)["items"]
        running = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        return running[0] if running else None

    def _ask_driver(self, path: str) -> Any:
        """An answer of Spark's REST API; None: no answer."""
        self._driver = self._driver or self.driver()
        place = f"/api/v1/namespaces/{self.release.namespace}/pods/{self._driver}:4040/proxy/api/v1/applications"
        said = None if self._driver is None else self.release.ask("get", "--raw", f"{place}{path}")
        # While it starts, it answers with a text instead of JSON.
        if said is None or not said.lstrip().startswith(("[", "{")):
            self._driver = None
            return None
        return json.loads(said)

    def pages(self, path: str) -> Any:
        """The running application in Spark's REST API; None: no answer."""
        answer = self._ask_driver(f"/{self._application}{path}") if self._application else None
        if answer is None:
            found = self._ask_driver("")
            self._application = found[0]["id"] if found else ""
        return answer

    def application(self) -> str:
        """The id of the application that runs, or ran last."""
        self.pages("")
        return self._application

    def busy_executor(self) -> str | None:
        """The id of an executor that runs a task of a batch."""
        executors = self.pages("/executors") or []
        busy = [each["id"] for each in executors if each["id"] != "driver" and each["activeTasks"] > 0]
        return busy[0] if busy else None

    def wait_for_batches(self) -> str:
        """Wait until the job is in the middle of its work; returns the id of a busy executor."""
        until_sync(lambda: self.release.stored(self.topic), JOB_STARTS_S, every_s=0.5, waiting_for="the first rows")
        return until_sync(self.busy_executor, JOB_STARTS_S, every_s=0.1, waiting_for="a task to run") or ""

    def kill_executor(self, total: int) -> None:
        """Force-delete the executor while it runs a task; repeat until Spark reports a lost task, since one may just
        have ended."""
        for _ in range(KILLS_MAX):
            executor = self.wait_for_batches()
            selector = f"spark-app-selector={self.application()},spark-exec-id={executor}"
            self.release.kubectl("delete", "pod", "--force", "--grace-period=0", "--selector", selector)
            stored = self.release.stored(self.topic)
            lost = until_sync(
                partial(self._loss_of, executor), JOB_STARTS_S, every_s=0.5, waiting_for="Spark to see it"
            )
            print(f"executor {executor} killed in a task; then {stored} of {total} rows were stored; {lost}")
            assert lost is not None
            assert stored < total, "all was copied before anything was killed: publish more"
            if lost.tasks > lost.completed:
                return
        raise AssertionError(f"none of {KILLS_MAX} kills hit a task")

    def _loss_of(self, executor: str) -> "Loss | None":
        """Spark's report of a lost executor."""
        for each in self.pages("/allexecutors") or []:
            if each["id"] == executor and not each["isActive"]:
                return Loss(each["totalTasks"], each["completedTasks"], each["failedTasks"], each["removeReason"])
        return None

    def kill_driver(self, total: int) -> None:
        """Force-delete the driver while a task runs; wait until its executors are gone, too."""
        application = self.application()
        self.wait_for_batches()
        driver = self.driver()
        assert driver is not None
        self.release.kubectl("delete", "pod", driver, "--force", "--grace-period=0")
        stored = self.release.stored(self.topic)
        print(f"driver {driver} killed within a batch; then {stored} of {total} rows were stored")
        assert stored < total, "all was copied before anything was killed: publish more"
        selector = f"spark-role=executor,spark-app-selector={application}"

        def orphans() -> bool:
            said = self.release.ask("get", "pods", "--selector", selector, "-o", "name")
            return said is not None and not said.strip()

        until_sync(orphans, JOB_STARTS_S, every_s=0.5, waiting_for="the executors of the killed driver to go")

    def wait_for_all(self, total: int) -> None:
        until_sync(lambda: self.release.stored(self.topic) >= total, JOB_ENDS_S, every_s=1.0, waiting_for="all rows")
