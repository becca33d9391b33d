"""Commands of `oncelog admin` that the chart runs: `apply` gives declared tenants, namespaces and topics to the cluster
after each install and upgrade, and `backup create` copies ZooKeeper's records."""

import base64
import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
import typer
import yaml

from oncelog.cli.admin.provisioning_file import POLICIES, read_file
from oncelog.cli.app import app
from oncelog.cli.failures import Exit
from tests.kubernetes.chart import RELEASE, Manifest, manifests_in, of_kind, one, schema, template, values_of

NAME = f"{RELEASE}-provisioning"


def job(name: str = "everything") -> Manifest:
    (found,) = of_kind(name, "Job")
    return found


def container() -> Manifest:
    (found,) = job()["spec"]["template"]["spec"]["containers"]
    return cast("Manifest", found)


def options_of(words: list[str]) -> set[str]:
    """The options of a command. KeyError if it does not exist."""
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts}


def test_job_runs_after_each_install_and_upgrade() -> None:
    """The command changes only what differs, so an upgrade that changes nothing here changes nothing in the cluster. An
    error that another attempt would not mend fails the Job at once."""
    annotations = job()["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "post-install,post-upgrade"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    (rule,) = job()["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [Exit.FAILED, Exit.USAGE]
    assert rule["onExitCodes"]["containerName"] == container()["name"]


def test_command_of_the_job_exists() -> None:
    """With its options, in the program that the image runs. It asks no question, and waits for the cluster."""
    args = container()["args"]
    assert args[:3] == ["oncelog.cli", "admin", "apply"]
    assert {word for word in args if word.startswith("--")} <= options_of(args[1:3])
    assert "--yes" in args
    assert args[args.index("--wait-seconds") + 1] == "120"


def test_file_of_the_job_is_read_by_the_command(tmp_path: Path) -> None:
    """As the values have it; large numbers are not rendered as floats."""
    args = container()["args"]
    directory, _, file = args[args.index("--file") + 1].rpartition("/")
    volumes = {volume["name"]: volume for volume in job()["spec"]["template"]["spec"]["volumes"]}
    (mount,) = [mount for mount in container()["volumeMounts"] if mount["mountPath"] == directory]
    assert volumes[mount["name"]]["configMap"]["name"] == NAME
    (tmp_path / file).write_text(one("everything", "ConfigMap", NAME)["data"][file])
    wanted = read_file(tmp_path / file)
    assert wanted.tenants == ("shop",)
    quota = {"limitSize": 10737418240, "limitTime": -1, "policy": "producer_request_hold"}
    assert wanted.namespaces["shop/orders"].policies["backlogQuota"] == quota
    assert wanted.namespaces["shop/orders"].rights == {"importer": ["produce"], "billing": ["consume"]}
    assert wanted.topics["shop/orders/new"].partitions == 12
    given = values_of("everything")["provisioning"]["config"]
    assert yaml.safe_load((tmp_path / file).read_text()) == given


def test_release_without_provisioning_has_no_job() -> None:
    """By default."""
    assert not of_kind("default", "Job")
    assert NAME not in {each["metadata"]["name"] for each in of_kind("default", "ConfigMap")}


def test_job_has_only_the_administrators_token() -> None:
    """No key, and no token of Kubernetes' API. Network policies allow its pod, which has the label of `helm test`."""
    pod = job()["spec"]["template"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    secrets = [volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume]
    assert [[item["key"] for item in secret["items"]] for secret in secrets] == [["ca.crt"], ["admin-token"]]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "check"


def test_schema_and_command_have_the_same_policies() -> None:
    """At each level, so that what Helm accepts is what the command accepts."""
    config = schema()["properties"]["provisioning"]["properties"]["config"]["properties"]
    (namespace,) = config["namespaces"]["patternProperties"].values()
    (topic,) = config["topics"]["patternProperties"].values()
    assert set(config["cluster"]["properties"]) == set(POLICIES)
    assert set(namespace["properties"]) == {*POLICIES, "rights"}
    of_topics = {name for name, policy in POLICIES.items() if policy.topic_path}
    assert set(topic["properties"]) == {*of_topics, "partitions"}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"tenant": ["a"]}, "tenant"),
        ({"tenants": "a"}, "tenants"),
        ({"namespaces": {"a/b": {"retention": "7d"}}}, "retention"),
        ({"namespaces": {"a/b": {"ttl": 1}}}, "ttl"),
        ({"namespaces": {"a/b": {"rights": {"c": ["write"]}}}}, "write"),
        ({"namespaces": {"a/b": None}}, "a/b"),
        ({"topics": {"a/b": {}}}, "a/b"),
        ({"topics": {"a": {"partitions": 0}}}, "partitions"),
        ({"cluster": {"messageTTL": "1d"}}, "messageTTL"),
    ],
)
def test_wrong_provisioning_is_refused_by_helm(config: dict[str, Any], field: str) -> None:
    """Before anything is installed."""
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.Draft7Validator(schema()).validate({"provisioning": {"config": config}})
    assert field in f"{refused.value.json_path} {refused.value.message}"


def test_namespace_without_content_is_not_dropped_in_silence(tmp_path: Path) -> None:
    """Helm treats null as "remove the value"."""
    values = tmp_path / "values.yaml"
    values.write_text("provisioning: {config: {namespaces: {shop/orders: }}}")
    done = template("--set", "tls.enabled=false", "--values", str(values))
    assert done.returncode != 0
    assert "provisioning.config.namespaces.shop/orders: Invalid type. Expected: object" in done.stderr


def test_copies_of_records_are_written_to_a_volume_by_a_role_that_does_nothing_else() -> None:
    """The pod has one token and no key; the token's role is that of the metadata services' setting."""
    job = one("pipeline", "CronJob", "oncelog-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = job["containers"]
    assert container["args"][:4] == ["oncelog.cli", "admin", "backup", "create"]
    assert {word for word in container["args"] if word.startswith("--")} <= options_of(container["args"][1:4])
    assert container["args"][container["args"].index("--keep") + 1] == "48"
    assert job["automountServiceAccountToken"] is False
    secrets = [volume["secret"] for volume in job["volumes"] if "secret" in volume]
    assert [[item["key"] for item in secret["items"]] for secret in secrets] == [["ca.crt"], ["backup-token"]]
    claim = one("pipeline", "PersistentVolumeClaim", "oncelog-backup")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (mounted,) = (volume["persistentVolumeClaim"] for volume in job["volumes"] if "persistentVolumeClaim" in volume)
    assert mounted["claimName"] == claim["metadata"]["name"]
    (service,) = one("pipeline", "Deployment", "oncelog-metadata")["spec"]["template"]["spec"]["containers"]
    assert {"name": "ONCELOG_BACKUP_ROLES", "value": "oncelog-backup"} in service["env"]
    token = base64.b64decode(one("pipeline", "Secret", "oncelog-auth")["data"]["backup-token"]).decode()
    payload = token.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"] == "oncelog-backup"


def test_the_first_copy_binds_its_volume_at_once() -> None:
    """Most storage classes bind a volume when a pod uses it first, and `helm --wait` waits for that: without the Job an
    install would fail after its timeout. A Job cannot be changed, so that another pod needs another name."""
    (cron,) = of_kind("pipeline", "CronJob")
    (first,) = (each for each in of_kind("pipeline", "Job") if each["metadata"]["name"].startswith("oncelog-backup-"))
    assert "annotations" not in first["metadata"], "Helm waits for a hook before it waits for the volume"
    assert first["spec"]["template"] == cron["spec"]["jobTemplate"]["spec"]["template"]
    done = template("--set", "backup.enabled=true,backup.keep=7", "-s", "templates/backup.yaml")
    other = [each["metadata"]["name"] for each in manifests_in(done.stdout) if each["kind"] == "Job"]
    assert len(other) == 1
    assert other != [first["metadata"]["name"]]


def test_there_is_no_job_for_copies_by_default() -> None:
    """Storage nodes keep them without it, and a token that nobody needs is a risk."""
    assert not of_kind("default", "CronJob")
    assert "backup-token" not in one("default", "Secret", "oncelog-auth")["data"]
