"""The entrypoint of the pipeline image, run with stand-ins for Spark and Java."""

import re
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRYPOINT = ROOT / "docker/pipeline/entrypoint"
#: The variables that a driver sets for an executor, as in Spark's BasicExecutorFeatureStep.
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "copy-exec-3",
}


def started(tmp_path: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The output of the started program: its name and its arguments, a line each."""
    for place, name in (("home/bin", "spark-submit"), ("java/bin", "java")):
        program = tmp_path / place / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
        program.chmod(0o755)
    own = {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(tmp_path / "home"), "JAVA_HOME": str(tmp_path / "java")}
    return subprocess.run(
        [ENTRYPOINT, *words], capture_output=True, text=True, timeout=60, check=False, env=own | environment
    )


def test_cluster_mode_driver_runs_in_client_mode(tmp_path: Path) -> None:
    """With the address that Kubernetes gave its pod. Arguments with spaces are not split."""
    words = ("driver", "--properties-file", "/opt/spark/conf/spark.properties", "local:///x.py", "a b")
    done = started(tmp_path, *words, SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert done.stdout.splitlines() == [
        "spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client",
        "--properties-file", "/opt/spark/conf/spark.properties", "local:///x.py", "a b",
    ]  # fmt: skip


def test_executor_gets_all_settings_of_its_driver(tmp_path: Path) -> None:
    """JVM options in numeric order, two before ten; its memory, its name and its address."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} x" for number in range(11)}
    done = started(tmp_path, "executor", **EXECUTOR, **options)
    lines = done.stdout.splitlines()
    assert lines[:12] == ["java", *(f"-Dn={number} x" for number in range(11))]
    memory, classes, name = lines[12:14], lines[14:16], lines[16]
    assert memory == ["-Xms512m", "-Xmx512m"]
    assert (classes[0], classes[1].endswith("/home/jars/*")) == ("-cp", True)
    assert name == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    told = dict(zip(lines[17::2], lines[18::2], strict=True))
    assert told == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "copy-exec-3",
    }


def test_executor_class_is_in_the_jars_of_pyspark() -> None:
    """The PySpark package includes the Kubernetes support; a version without it would fail in every pod."""
    (jar,) = Path(next(iter(pyspark.__path__))).glob("jars/spark-kubernetes_*.jar")
    name = re.search(r"org\.apache\.spark[\w.]*KubernetesExecutorBackend", ENTRYPOINT.read_text())
    assert name is not None
    with zipfile.ZipFile(jar) as found:
        assert f"{name[0].replace('.', '/')}.class" in found.namelist()


def test_spark_submit_gets_its_arguments_unchanged(tmp_path: Path) -> None:
    """As on a user's own machine."""
    done = started(tmp_path, "spark-submit", "--deploy-mode", "client", "a b")
    assert done.stdout.splitlines() == ["spark-submit", "--deploy-mode", "client", "a b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["executor"], "which gives it SPARK_DRIVER_URL SPARK_EXECUTOR_ID"),
        (["driver"], "SPARK_DRIVER_BIND_ADDRESS"),
    ],
)
def test_manual_start_is_an_error_with_advice(words: list[str], said: str, tmp_path: Path) -> None:
    """Not a traceback of the JVM."""
    done = started(tmp_path, *words)
    assert done.returncode == 64
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
