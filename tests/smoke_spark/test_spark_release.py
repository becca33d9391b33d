"""Jobs on Spark beside an installed release, as users run them, with executors and drivers killed within their batches.

Real text is published by producers with names, a line a message, and copied by Spark: by spark-submit in client mode
from a pod, by spark-submit in cluster mode from this machine, and by the chart's own driver. Each time an executor and
then the driver are killed by force while tasks run; what the target holds then is compared with the text.

About twenty minutes on the current kube context (`make smoke-spark`), in a namespace of its own; no part of the default
tests. IMAGES names a values file with the images' names, `docker/build.sh services pipeline --archive DIR` writes it.
The tests are steps of one story and run in this order.
"""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from tests.cluster.until import until_sync
from tests.kubernetes.chart import CHART, ROOT
from tests.smoke.release import RELEASE, run
from tests.smoke_spark.spark_release import COPIES, JOB_ENDS_S, ROLE, SOURCES, Copied, SparkRelease, Watched

TOPICS = {"code": ROOT / "services/oncelog", "tests": ROOT / "tests"}
LINES = 20_000
ROWS_PER_BATCH = 1_000
MAIN = "local:///opt/pipeline/jobs/oncelog_jobs.py"
CHECKPOINTS = "spark.kubernetes.driver.volumes.persistentVolumeClaim.checkpoints"


def text_of(directory: Path) -> list[str]:
    """The lines to publish, from a tree of real files."""
    lines = [line for path in sorted(directory.rglob("*.py")) for line in path.read_text().splitlines()]
    return lines[:LINES]


LINES_OF = {name: text_of(directory) for name, directory in TOPICS.items()}
TOTAL = sum(map(len, LINES_OF.values()))
EXPECTED = {name: [f"copy of {line}" for line in lines] for name, lines in LINES_OF.items()}


def words(name: str) -> list[str]:
    """The job: rows are identified by their position, and get another value."""
    return [
        "copy",
        f"--from={','.join(f'{SOURCES}/{topic}' for topic in TOPICS)}",
        f"--to={COPIES}/{name}",
        f"--producer-prefix={name}",
        f"--checkpoint=/checkpoints/{name}",
        f"--max-rows-per-batch={ROWS_PER_BATCH}",
        "--value=concat('copy of ', cast(value as string))",
    ]


@pytest.fixture(scope="module")
def release() -> Iterator[SparkRelease]:
    """A namespace that is deleted at the end, with its volumes."""
    own = SparkRelease(f"spark-{secrets.token_hex(3)}")
    try:
        yield own
    finally:
        run(["kubectl", "delete", "namespace", own.namespace, "--wait=false", "--ignore-not-found"])


def test_a_release_with_accounts_for_jobs_is_ready(release: SparkRelease) -> None:
    """The messages are published, and the jobs' role may read them and publish the copies, and nothing else."""
    release.install()
    release.oncelog("admin", "namespaces", "create", COPIES)
    release.oncelog("admin", "namespaces", "grant", SOURCES, ROLE, "consume")
    release.oncelog("admin", "namespaces", "grant", COPIES, ROLE, "produce", "consume")
    for topic, lines in LINES_OF.items():
        release.publish(topic, lines)
    print(f"{TOTAL} lines published to {len(TOPICS)} topics")


def killed_and_compared(release: SparkRelease, watched: Watched, name: str, driver_again: object = None) -> None:
    """One executor, then the driver, each within a batch; then every message is stored once, in order."""
    watched.kill_executor(TOTAL)
    watched.kill_driver(TOTAL)
    if callable(driver_again):
        driver_again()
    watched.wait_for_all(TOTAL)
    found = release.compare(name, EXPECTED)
    print(f"{name}: {found}")
    assert found == Copied(messages=TOTAL, lost=0, duplicated=0, out_of_order=0)


def test_client_mode_in_a_pod_loses_and_duplicates_nothing(release: SparkRelease) -> None:
    """The chart's example of a Job, word for word except names, sizes and the job's arguments."""
    name = "client"
    claim, job = release.manifests(CHART / "examples/client-mode.yaml")
    pod = job["spec"]["template"]["spec"]
    claim["metadata"]["name"] = job["metadata"]["name"] = name
    (volume,) = [each for each in pod["volumes"] if each["name"] == "checkpoints"]
    volume["persistentVolumeClaim"]["claimName"] = name
    (container,) = pod["containers"]
    container["image"] = settings(release)["spark.kubernetes.container.image"]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "1Gi"}}
    before = container["args"][: container["args"].index(MAIN) + 1]
    container["args"] = [*before, *words(name), "--available-now"]
    release.apply([claim, job])
    killed_and_compared(release, Watched(release, f"batch.kubernetes.io/job-name={name}", name), name)
    release.kubectl("wait", "--for=condition=complete", f"job/{name}", f"--timeout={JOB_ENDS_S:.0f}s")
    assert spark_pods(release) == []
    # The Job belongs to its user, although it has the release's label: an uninstall does not delete it.
    release.kubectl("delete", "job", name)


def test_cluster_mode_from_this_machine_loses_and_duplicates_nothing(release: SparkRelease, tmp_path: Path) -> None:
    """With the files of the chart's ConfigMap; such a driver is not restarted, so it is submitted again."""
    name = "cluster"
    for path, text in release.spark_files().items():
        (tmp_path / path).write_text(text)
    claim = release.manifests(CHART / "examples/client-mode.yaml")[0]
    claim["metadata"]["name"] = name
    release.apply([claim])
    submit(release, name, tmp_path)
    watched = Watched(release, f"spark-role=driver,spark-app-name={name}", name)
    killed_and_compared(release, watched, name, lambda: submit(release, name, tmp_path))

    def succeeded() -> bool:
        said = release.ask("get", "pod", name, "-o", "jsonpath={.status.phase}")
        assert said != "Failed", release.ask("logs", name)
        return said == "Succeeded"

    until_sync(succeeded, JOB_ENDS_S, every_s=1.0, waiting_for="the driver to end")
    release.kubectl("delete", "pod", name)


def submit(release: SparkRelease, name: str, directory: Path) -> None:
    """As in the chart's README.md."""
    home = Path(next(iter(pyspark.__path__)))
    server = run(["kubectl", "config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"])
    access = credentials(release, directory)
    confs = [
        f"spark.kubernetes.authenticate.submission.caCertFile={access / 'ca.crt'}",
        f"spark.kubernetes.authenticate.submission.oauthTokenFile={access / 'token'}",
        f"spark.kubernetes.driver.pod.name={name}",
        f"spark.kubernetes.driver.podTemplateFile={directory / 'driver.yaml'}",
        f"spark.kubernetes.executor.podTemplateFile={directory / 'executor.yaml'}",
        f"{CHECKPOINTS}.mount.path=/checkpoints",
        f"{CHECKPOINTS}.options.claimName={name}",
        "spark.kubernetes.submission.waitAppCompletion=false",
    ]
    command = [str(home / "bin/spark-submit"), "--master", f"k8s://{server}", "--deploy-mode", "cluster"]
    command += ["--name", name, "--properties-file", str(directory / "spark.properties")]
    command += [word for conf in confs for word in ("--conf", conf)]
    command += [MAIN, *words(name), "--available-now"]
    print("$", *command, flush=True)
    # Without the kubeconfig: Spark's client does not read every kind of key that kubectl does.
    own = os.environ | {"SPARK_HOME": str(home), "KUBECONFIG": str(directory / "none")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=own)
    assert done.returncode == 0, done.stderr[-4000:]


def credentials(release: SparkRelease, directory: Path) -> Path:
    """The token of an account that may submit: it creates a driver's pod, Service, ConfigMap and NetworkPolicy."""
    verbs = ["create", "get", "list", "watch", "update", "patch", "delete"]
    groups = {"": ["pods", "services", "configmaps"], "networking.k8s.io": ["networkpolicies"]}
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": verbs} for group, kinds in groups.items()]
    head = {"name": "submitter", "namespace": release.namespace}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": head}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": head}
    whom = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "submitter"}
    binding = {**rbac, "kind": "RoleBinding", "roleRef": whom, "subjects": [{"kind": "ServiceAccount", **head}]}
    release.apply([account, {**rbac, "kind": "Role", "rules": rules}, binding])
    config = json.loads(release.kubectl("get", "configmap", "kube-root-ca.crt", "-o", "json"))
    (directory / "ca.crt").write_text(config["data"]["ca.crt"])
    words = ["kubectl", "--namespace", release.namespace, "create", "token", "submitter", "--duration", "1h"]
    token = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    (directory / "token").write_text(token.strip())
    return directory


def test_chart_driver_loses_and_duplicates_nothing(release: SparkRelease, tmp_path: Path) -> None:
    """Its Deployment restarts it; it runs until it is stopped, so later messages are copied, too."""
    name = "deployed"
    arguments = [f"--max-rows-per-batch={ROWS_PER_BATCH}", words(name)[-1]]
    copy = {"from": ",".join(f"{SOURCES}/{topic}" for topic in TOPICS), "to": f"{COPIES}/{name}"}
    pipeline = {"replicaCount": 1, "copy": copy | {"producerPrefix": name}, "application": {"arguments": arguments}}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"pipeline": pipeline}))
    run([*release.upgrade(), "--values", str(values)], timeout_s=600)
    own = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=pipeline"
    watched = Watched(release, f"{own},pod-template-hash", name)
    began = time.monotonic()
    killed_and_compared(release, watched, name)
    print(f"{name}: {TOTAL} rows through two kills in {time.monotonic() - began:.0f} s")
    release.kubectl("rollout", "status", f"deployment/{ROLE}", "--timeout=300s")


def test_an_uninstall_removes_driver_and_executors(release: SparkRelease) -> None:
    """Executors belong to their driver's pod."""
    release.helm("uninstall", RELEASE, "--cascade", "foreground", "--wait", "--timeout", "180s")
    until_sync(lambda: spark_pods(release) == [], 180, every_s=1.0, waiting_for="executors to go")
    assert release.kinds_left() <= {"PersistentVolumeClaim"}


def settings(release: SparkRelease) -> dict[str, str]:
    """Spark's settings, from the chart."""
    lines = release.spark_files()["spark.properties"].splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def spark_pods(release: SparkRelease) -> list[str]:
    found = json.loads(release.kubectl("get", "pods", "--selector", "spark-role=executor", "-o", "json"))["items"]
    return [pod["metadata"]["name"] for pod in found]
