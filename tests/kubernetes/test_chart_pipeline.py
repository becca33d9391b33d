"""Spark: the rendered driver, executors, and objects for jobs that users submit."""

import base64
from typing import Any

import jwt
import pytest
import typer

from oncelog_spark.cli.app import pipeline
from tests.kubernetes.chart import (
    CHART,
    FILES,
    NAMESPACE,
    RELEASE,
    Manifest,
    component,
    containers,
    environment,
    of_kind,
    one,
    rendered,
    spark_files,
    spark_templates,
    template,
)

NAME = f"{RELEASE}-pipeline"
MAIN = "local:///opt/pipeline/jobs/oncelog_jobs.py"
#: Without certificates, which take longer to create than the rest of the chart.
QUICK = ("--set", "tls.enabled=false,redis.enabled=false,pipeline.enabled=true")
COPY = "pipeline.copy.from=a,pipeline.copy.to=b,pipeline.copy.producerPrefix=c"


def settings(name: str) -> dict[str, str]:
    """Of Spark, as the ConfigMap gives them."""
    lines = [line.strip() for line in spark_files(name)["spark.properties"].splitlines()]
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def driver(name: str) -> Manifest:
    """The one container of the Deployment."""
    (found,) = one(name, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def words_of_spark(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """(confs, main file and its arguments) of a spark-submit command line."""
    assert arguments[0] == "spark-submit"
    confs: dict[str, str] = {}
    rest = arguments[1:]
    while rest[0].startswith("--"):
        option, equals, value = rest.pop(0).partition("=")
        value = value if equals else rest.pop(0)
        key, _, setting = value.partition("=")
        confs |= {key: setting} if option == "--conf" else {option: value}
    return confs, rest


def understood(words: list[str]) -> set[str]:
    """Options among a job's arguments that its command does not have."""
    group: Any = typer.main.get_command(pipeline)
    command = group.commands[words[0]]
    known = {option for parameter in command.params for option in parameter.opts}
    return {word.partition("=")[0] for word in words[1:] if word.startswith("--")} - known


def test_pipeline_is_off_by_default() -> None:
    """Spark needs a gigabyte, and its driver may create pods."""
    assert [each["metadata"]["name"] for each in rendered("default") if component(each) == "pipeline"] == []


def test_driver_arguments_are_valid() -> None:
    """The command accepts the options that the values set, and the job's file is in the image."""
    confs, words = words_of_spark(driver("pipeline")["args"])
    assert confs["--deploy-mode"] == "client"
    assert confs["--master"] == "k8s://https://kubernetes.default.svc"
    assert words == [
        MAIN, "copy", "--from", "public/default/orders,public/default/returns", "--to", "public/copies/all",
        "--producer-prefix", "copies", "--checkpoint", "$(CHECKPOINT_LOCATION)/copy",
    ]  # fmt: skip
    assert understood(words[1:]) == set()
    assert understood(["copy", "--form=a"]) == {"--form"}, "the control"
    assert environment(driver("pipeline"))["CHECKPOINT_LOCATION"] == "/checkpoints"


def test_own_main_file_replaces_the_copy_job() -> None:
    """Set by a value; its arguments are passed unchanged."""
    _, words = words_of_spark(driver("everything")["args"])
    assert words == ["/etc/oncelog/spark/main.py", "--to=$(CHECKPOINT_LOCATION)", '--quoted={"a": 1}']
    assert spark_files("everything")["main.py"] == "print('hello')\n"
    done = template(*QUICK, "--set", "pipeline.application.file=local:///x.py", "-s", "templates/pipeline.yaml")
    assert '- "local:///x.py"' in done.stdout


def test_executors_belong_to_the_pod_of_their_driver_and_connect_to_it() -> None:
    """Owner references delete them with the driver. They connect to the driver's own address, so they never reach
    another driver."""
    confs, _ = words_of_spark(driver("pipeline")["args"])
    seen = environment(driver("pipeline"))
    for conf, variable, field in (
        ("spark.kubernetes.driver.pod.name", "POD_NAME", "metadata.name"),
        ("spark.driver.host", "POD_IP", "status.podIP"),
    ):
        assert (confs[conf], seen[variable]) == (f"$({variable})", f"<{field}>")
    mounts = {mount["mountPath"]: mount["name"] for mount in driver("pipeline")["volumeMounts"]}
    assert mounts["/etc/oncelog/spark"] == "spark"
    for option, path in (
        ("--properties-file", "spark.properties"),
        ("spark.kubernetes.executor.podTemplateFile", "executor.yaml"),
    ):
        assert confs[option] == f"/etc/oncelog/spark/{path}"
        assert path in spark_files("pipeline")


def test_driver_restarts_and_never_runs_twice() -> None:
    """Two drivers would fence each other: no message would be lost, but none copied either."""
    spec = one("pipeline", "Deployment", NAME)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "restartPolicy" not in spec["template"]["spec"], "Always, by default"
    assert driver("pipeline")["readinessProbe"]["httpGet"] == {"path": "/api/v1/version", "port": "ui"}
    assert not {"livenessProbe", "startupProbe"} & set(driver("pipeline")), "one that is slow is not dead"
    assert one("external", "Deployment", NAME)["spec"]["replicas"] == 0


def test_changed_setting_restarts_the_driver() -> None:
    """Spark reads settings only at its start."""
    sums = set()
    for value in ("1g", "2g"):
        done = template(*QUICK, "--set", f"{COPY},pipeline.executor.memory={value}", "-s", "templates/pipeline.yaml")
        sums |= {line for line in done.stdout.splitlines() if "checksum/config" in line}
    assert len(sums) == 2


@pytest.mark.parametrize("name", ["pipeline", "everything", "external"])
def test_accounts_have_the_rights_that_they_need(name: str) -> None:
    """A driver creates, watches and deletes pods and ConfigMaps of one namespace. It has no right on Secrets or
    volumes; executors have no rights and no token."""
    (role,) = [each for each in of_kind(name, "Role") if component(each) != "chaos"]
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        ([""], ["pods"], ["create", "get", "list", "watch", "delete", "deletecollection"]),
        ([""], ["configmaps"], ["create", "get", "list", "delete", "deletecollection"]),
    ]
    (binding,) = [each for each in of_kind(name, "RoleBinding") if component(each) != "chaos"]
    space = role["metadata"]["namespace"]
    assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == (space, role["metadata"]["name"])
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": space}]
    assert of_kind(name, "ClusterRole", "ClusterRoleBinding") == []
    accounts = {file: pod["spec"]["serviceAccountName"] for file, pod in spark_templates(name).items()}
    assert accounts == {"driver.yaml": NAME, "executor.yaml": f"{NAME}-executor"}
    assert settings(name)["spark.kubernetes.authenticate.driver.serviceAccountName"] == NAME
    assert settings(name)["spark.kubernetes.authenticate.executor.serviceAccountName"] == f"{NAME}-executor"


def test_jobs_have_a_token_and_the_ca_and_no_key() -> None:
    """Its role is not a superuser: an administrator grants its rights."""
    found = {key: base64.b64decode(value) for key, value in one("pipeline", "Secret", NAME)["data"].items()}
    assert set(found) == {"token", "ca.crt"}
    key = base64.b64decode(one("pipeline", "Secret", f"{RELEASE}-auth")["data"]["key"])
    claims = jwt.decode(found["token"], key, algorithms=["HS256"], audience="oncelog")
    assert claims["sub"] == "oncelog-pipeline"
    assert found["ca.crt"] == base64.b64decode(one("pipeline", "Secret", f"{RELEASE}-tls")["data"]["ca.crt"])
    for part, container in containers("pipeline"):
        seen = environment(container)
        if part in {"owner", "storage", "metadata"}:
            assert "oncelog-pipeline" not in seen["ONCELOG_AUTH_SUPERUSERS"].split(",")
        if part in {"pipeline", "executor"}:
            paths = [seen[name] for name in ("ONCELOG_TOKEN_FILE", "ONCELOG_TLS_CA_FILE")]
            assert paths == ["/etc/oncelog/pipeline/token", "/etc/oncelog/pipeline/ca.crt"]
            assert seen["ONCELOG_CLOSED_LEDGERS"] == "owner"


def test_reading_from_storage_nodes_makes_the_role_a_superuser() -> None:
    """Storage nodes serve superusers only. So one value enables both, and it is off by default."""
    for part, container in containers("everything"):
        seen = environment(container)
        if part in {"owner", "storage", "metadata"}:
            assert "counting" in seen["ONCELOG_AUTH_SUPERUSERS"].split(",")
        if part in {"pipeline", "executor"}:
            assert seen["ONCELOG_CLOSED_LEDGERS"] == "storage"
    assert {"pipeline", "executor"} <= set(peers("everything", "storage", 6650))
    assert not {"pipeline", "executor"} & set(peers("pipeline", "storage", 6650))


def peers(name: str, part: str, port: int) -> dict[str, str | None]:
    """{allowed component: its namespace, None: the same} by the policy of another component."""
    rules = one(name, "NetworkPolicy", f"{RELEASE}-{part}")["spec"]["ingress"]
    found: dict[str, str | None] = {}
    for peer in [peer for rule in rules if {"port": port, "protocol": "TCP"} in rule["ports"] for peer in rule["from"]]:
        if "podSelector" in peer:
            space = peer.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name")
            found[peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]] = space
    return found


def test_policies_allow_driver_and_executors_to_connect() -> None:
    """On the ports that Spark is configured to use, and on no others."""
    ports = settings("pipeline")
    assert ports["spark.port.maxRetries"] == "0"
    assert set(peers("pipeline", "pipeline", int(ports["spark.driver.port"]))) == {"executor"}
    assert set(peers("pipeline", "pipeline", int(ports["spark.driver.blockManager.port"]))) == {"executor"}
    assert set(peers("pipeline", "executor", int(ports["spark.blockManager.port"]))) == {"pipeline", "executor"}
    named = {port["name"]: str(port["containerPort"]) for port in driver("pipeline")["ports"]}
    assert named == {
        "driver": ports["spark.driver.port"],
        "blocks": ports["spark.driver.blockManager.port"],
        "ui": ports["spark.ui.port"],
    }
    labels = {file: pod["metadata"]["labels"] for file, pod in spark_templates("pipeline").items()}
    own = {file: found["app.kubernetes.io/component"] for file, found in labels.items()}
    assert own == {"driver.yaml": "pipeline", "executor.yaml": "executor"}


def test_jobs_may_connect_if_clients_are_limited() -> None:
    """Like the release's own pods."""
    words = ("--set", f"{COPY},networkPolicy.clients[0].podSelector.matchLabels.a=b")
    done = template(*QUICK, *words, "-s", "templates/networkpolicies.yaml")
    assert done.returncode == 0, done.stderr
    for part in ("metadata", "owner"):
        policy = done.stdout.split(f"name: {RELEASE}-{part}\n")[1].split("---")[0]
        assert "component: pipeline\n" in policy
        assert "component: executor\n" in policy


def test_separate_namespace_holds_the_pipeline_and_no_key() -> None:
    """An account that may create pods in a namespace may mount its Secrets. The release's policies select the
    namespace by its name."""
    inside = [each for each in rendered("everything") if component(each) in {"pipeline", "executor"}]
    assert {each["metadata"]["namespace"] for each in inside} == {"jobs"}
    assert {each["kind"] for each in inside} >= {"Deployment", "ConfigMap", "Secret", "ServiceAccount", "Role"}
    secrets = [each for each in of_kind("everything", "Secret") if each["metadata"].get("namespace") == "jobs"]
    assert [sorted(each["data"]) for each in secrets] == [["ca.crt", "token"]]
    assert peers("everything", "storage", 6650) == {
        "metadata": None, "owner": None, "storage": None, "pipeline": "jobs", "executor": "jobs",
    }  # fmt: skip
    assert set(peers("everything", "executor", 7079).values()) == {None}
    assert settings("everything")["spark.kubernetes.namespace"] == "jobs"
    assert environment(driver("everything"))["ONCELOG_URL"].endswith(f".{NAMESPACE}.svc:6650")


def test_checkpoints_survive_the_release_by_default() -> None:
    """Without its checkpoint a job would need its start offsets as an argument. Executors write state only to
    writable volumes."""
    claim = one("pipeline", "PersistentVolumeClaim", f"{NAME}-checkpoints")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    shared = one("everything", "PersistentVolumeClaim", f"{NAME}-checkpoints")
    assert "annotations" not in shared["metadata"]
    assert (shared["spec"]["accessModes"], shared["spec"]["storageClassName"]) == (["ReadWriteMany"], "shared")
    assert of_kind("external", "PersistentVolumeClaim") == []
    mounted = {
        name: "/checkpoints" in str(spark_templates(name)["executor.yaml"]) for name in ("pipeline", "everything")
    }
    assert mounted == {"pipeline": False, "everything": True}
    assert environment(driver("external"))["CHECKPOINT_LOCATION"] == "s3a://bucket/checkpoints"


def test_unmounted_claim_does_not_block_an_install() -> None:
    """`helm install --wait` waits until claims are bound, and most are bound only when a pod uses them."""
    done = template(*QUICK, "--set", "pipeline.replicaCount=0", "-s", "templates/pipeline.yaml")
    assert done.returncode == 0, done.stderr
    assert "PersistentVolumeClaim" not in done.stdout


def test_driver_and_executors_use_encrypted_connections() -> None:
    """The connections carry messages, and code that is executed."""
    found = settings("pipeline")
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert found["spark.ui.killEnabled"] == "false"


def test_user_settings_override_chart_settings() -> None:
    """Except the settings that the chart depends on."""
    found = settings("everything")
    assert (found["spark.sql.shuffle.partitions"], found["spark.executor.memory"]) == ("8", "3g")
    assert (found["spark.executor.instances"], found["spark.kubernetes.executor.limit.cores"]) == ("4", "2")
    assert found["spark.kubernetes.container.image"] == "mirror.example:5000/oncelog/oncelog-pipeline:1.2.5"
    assert found["spark.kubernetes.container.image.pullPolicy"] == "Never"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "pipeline.copy.from is empty"),
        ("pipeline.copy.from=a,pipeline.copy.to=b", "pipeline.copy.producerPrefix is empty"),
        ("pipeline.application.file=a,pipeline.application.script=b", "are both set: choose one"),
        (f"{COPY},pipeline.application.file=a", "pipeline.copy and pipeline.application are both set"),
        (f"{COPY},pipeline.role=oncelog-admin", "which is a superuser"),
        (f"{COPY},pipeline.role=ops,auth.superusers[0]=ops", "which is a superuser"),
        (f"{COPY},auth.existingSecret=ours", "the chart cannot create tokens with your own key"),
        (f"{COPY},tls.enabled=true,tls.existingSecret=ours", "the chart does not have your CA"),
        (
            f"{COPY},pipeline.checkpoint.location=s3a://x,pipeline.checkpoint.persistence.existingClaim=y",
            "choose one",
        ),
        (f"{COPY},pipeline.sparkConf.spark\\.driver\\.host=x", "spark.driver.host, which the chart sets"),
        (f"{COPY},pipeline.replicaCount=2", "replicaCount"),
        (f"{COPY},pipeline.sparkConf.master=x", "sparkConf"),
        (f"{COPY},pipeline.executor.memory=1Gi", "memory"),
        (f"{COPY},pipeline.closedLedgers=both", "closedLedgers"),
        (f"{COPY},pipeline.checkpoint.location=relative", "location"),
    ],
)
def test_contradicting_pipeline_values_are_refused_with_their_names(given: str, said: str) -> None:
    """At the install, not in the log of a driver."""
    done = template(*QUICK, *(("--set", given) if given else ()))
    assert done.returncode != 0
    assert said in done.stderr


def test_values_files_cover_each_pipeline_mode() -> None:
    """The control of the tests above: with and without a driver, in the same and in another namespace."""
    drivers = {name for name in FILES if spark_files(name)}
    assert drivers == {"pipeline", "everything", "external"}
    assert (CHART / "examples").is_dir()
