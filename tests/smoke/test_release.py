"""An installation from a user's view: install, test, administer, kill under load, upgrade under load, uninstall.

Six minutes on the current kube context (`make smoke`), in a separate namespace; not part of the default tests. The
tests are steps of one story and run in this order.
"""

import json
import secrets
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.until import until_sync
from tests.smoke.release import RELEASE, Release, run
from tests.smoke.rest_examples import run_examples

PARTS = ("owner", "storage", "metadata", "zookeeper", "redis")
#: As the chart gives an owner.
GRACE_S = 120.0
KINDS = "owner-kill,storage-kill,metadata-kill,zookeeper-leader-kill,redis-kill"


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """A namespace that is deleted at the end, with its volumes."""
    own = Release(f"oncelog-smoke-{secrets.token_hex(3)}")
    try:
        yield own
    finally:
        run(["kubectl", "delete", "namespace", own.namespace, "--wait=false", "--ignore-not-found"])


def test_install_is_ready_within_a_minute(release: Release) -> None:
    """With loaded images. No component restarts, in whatever order the pods start."""
    began = time.monotonic()
    release.install()
    took_s = time.monotonic() - began
    statuses = [status for pod in release.pods() for status in pod["status"]["containerStatuses"]]
    print(f"ready after {took_s:.1f} s: {len(statuses)} containers")
    assert all(status["ready"] for status in statuses)
    assert {status["name"]: status["restartCount"] for status in statuses if status["restartCount"]} == {}


def test_declared_namespaces_and_topics_exist_after_the_install(release: Release) -> None:
    """The Job of the post-install hook has created them, and is gone. The upgrade below finds nothing to change."""
    rights = release.oncelog("admin", "namespaces", "show", "public/declared", "--permissions", "-o", "json")
    assert json.loads(rights) == {"importer": ["produce"]}
    topics = release.oncelog("admin", "topics", "list", "public/declared", "--partitioned", "-o", "json")
    assert json.loads(topics) == ["public/declared/new"]
    assert "oncelog-provisioning" not in release.kubectl("get", "jobs", "--output", "name")


def test_helm_test_passes(release: Release) -> None:
    """The same producer and sequence id twice, read once. --logs needs the pod after its end."""
    assert "Succeeded" in release.helm("test", RELEASE, "--timeout", "90s", "--logs")


def test_printed_notes_and_admin_commands_work(release: Release) -> None:
    """The commands that each user runs first."""
    release.oncelog("produce", "greetings", "--stdin", stdin=b"hello\n")
    (message,) = [json.loads(line) for line in release.oncelog("read", "greetings", "-o", "json").splitlines()]
    assert message["value"] == "hello"
    release.oncelog("admin", "namespaces", "create", "public/orders")
    release.oncelog("admin", "policy", "set", "public/orders", "deduplication", "off")
    stats = json.loads(release.oncelog("admin", "topics", "stats", "public/default/greetings", "-o", "json"))
    assert stats["phase"] == "serving"


def test_examples_of_the_rest_guide_get_the_documented_responses(release: Release, tmp_path: Path) -> None:
    """Through the Service, with TLS and the tokens of this release."""
    assert run_examples(release, tmp_path) > 80


def test_kills_of_every_kind_lose_no_message(release: Release) -> None:
    """At least one kill of each component, sometimes two at once."""
    release.chaos("--kinds", KINDS, "--seconds", "60", "--seed", "7")


def test_upgrade_of_all_components_loses_no_message(release: Release) -> None:
    """It also adds an owner and a storage node, and a second upgrade removes the owner again: topics follow."""
    annotated = [f"--set-string={part}.podAnnotations.upgraded=yes" for part in PARTS]
    grown, shrunk = ["--set", "owner.replicaCount=3,storage.replicaCount=4"], ["--set", "storage.replicaCount=4"]
    upgrades = [shlex.join([*release.upgrade(), *annotated, *sizes]) for sizes in (grown, shrunk)]
    command = shlex.join(["sh", "-c", " && ".join(upgrades)])
    release.chaos("--kinds", "rollout", "--seconds", "20", "--seed", "7", "--rollout-command", command)
    nodes = json.loads(release.oncelog("admin", "storage", "nodes", "-o", "json"))
    assert len(nodes) == 4

    def two_owners() -> bool:
        parts = [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in release.pods()]
        return parts.count("owner") == 2

    # Helm does not wait for a terminating pod, and this one serves until all others are ready.
    until_sync(two_owners, GRACE_S, every_s=1.0, waiting_for="the third owner to end")


def test_uninstall_keeps_only_volumes_and_the_zookeeper_password(release: Release) -> None:
    """They hold the data, for a new install under the same name."""
    release.helm("uninstall", RELEASE, "--cascade", "foreground", "--wait", "--timeout", "120s")
    # The pod of the last `helm test` is not part of the release, and its log is kept.
    release.kubectl("delete", "pod", f"{RELEASE}-check")
    assert release.kinds_left() <= {"PersistentVolumeClaim", "Secret"}


def test_reinstall_under_the_same_name_has_all_messages(release: Release) -> None:
    """The volumes hold records and entries, and the remaining Secret lets the new pods read them."""
    release.install()
    (message,) = [json.loads(line) for line in release.oncelog("read", "greetings", "-o", "json").splitlines()]
    assert message["value"] == "hello"
