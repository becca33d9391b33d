"""ZooKeeper is lost under load with all its volumes, and docs/lost-zookeeper.md is followed word by word.

Three minutes on the current kube context (part of `make smoke-storage`), in a separate namespace; not part of the
default tests.
"""

import json
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog_lab.kubernetes.release import workload_manifest
from tests.cluster.until import until_sync
from tests.smoke.release import RELEASE, Release, run

PAGE = Path(__file__).parents[2] / "docs/lost-zookeeper.md"
LINES, RATE, HALF = 6_000, 100, 50
DEADLINE_S = 300.0
#: Publishes LINES lines, RATE a second, and goes on through every outage. A file that is sent again is deduplicated.
PUBLISH = f"""
import os
open("/tmp/lines", "w").writelines(f"line {{number}}\\n" for number in range({LINES}))
words = "python3 -m oncelog.cli produce flights --from-file /tmp/lines --producer-name flights --rate {RATE} -o json"
os.execvp("python3", words.split())
"""
COMMANDS = ("get", "scale", "delete", "scale", "rollout", "get", "exec", "exec", "wait", "exec")


def commands_of_the_page(namespace: str) -> list[list[str]]:
    """The commands for Kubernetes, in their order, for this namespace. Nobody is there to confirm one."""
    text = PAGE.read_text().partition("**On Kubernetes**")[2].partition("**On machines**")[0]
    lines = re.findall(r"^ {7}(\S.*(?:\\\n.*)*)$", text.replace("\\\n", " "), re.MULTILINE)
    commands = [shlex.split(line.replace("-n logs", f"-n {namespace}").replace("exec -it", "exec")) for line in lines]
    assert [command[3] for command in commands] == list(COMMANDS), commands
    for command in commands:
        if command[-1] == "restore":
            command.append("--yes")
    return commands


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """A namespace with three ZooKeeper servers. It is deleted at the end, with its volumes."""
    own = Release(f"oncelog-smoke-{secrets.token_hex(3)}")
    try:
        own.install("--set", "backup.enabled=true")
        yield own
    finally:
        run(["kubectl", "delete", "namespace", own.namespace, "--wait=false", "--ignore-not-found"])


def consumed(release: Release, *words: str) -> list[str]:
    printed = release.oncelog("consume", "half", "--subscription", "half", "--from", "earliest", *words, "-o", "json")
    return [json.loads(line)["value"] for line in printed.splitlines()]


def topics(release: Release) -> list[str]:
    found: list[str] = json.loads(release.oncelog("admin", "topics", "list", "public/default", "-o", "json"))
    return found


def phase(release: Release) -> str:
    """Of the pod that publishes."""
    return release.kubectl("get", "pod", "load", "-o", "jsonpath={.status.phase}")


@pytest.mark.hazard("emptied-zookeeper")
def test_zookeeper_whose_volumes_are_deleted_is_restored_as_the_page_says(release: Release) -> None:
    """While a pod publishes. Every message, acknowledgement, policy, right and deletion is there."""
    release.oncelog("admin", "namespaces", "grant", "public/default", "importer", "produce")
    release.oncelog("admin", "namespaces", "grant", "public/default", "billing", "consume")
    release.oncelog("admin", "namespaces", "revoke", "public/default", "billing")
    release.oncelog("admin", "policy", "set", "public/default", "message-ttl", "7d")
    release.oncelog("admin", "topics", "create", "gone")
    release.oncelog("admin", "topics", "delete", "gone", "--yes")
    half = [f"half {number}" for number in range(2 * HALF)]
    release.oncelog("produce", "half", "--stdin", stdin="\n".join(half).encode())
    assert consumed(release, "--limit", str(HALF)) == half[:HALF]
    pod = next(each for each in release.pods() if each["metadata"]["name"].startswith(f"{RELEASE}-metadata"))
    load = workload_manifest("load", pod, f"{RELEASE}-metadata", release.namespace, ())
    load["spec"]["containers"][0]["command"] = ["python3", "-c", PUBLISH]
    release.kubectl("create", "-f", "-", stdin=json.dumps(load).encode())
    until_sync(lambda: "public/default/flights" in topics(release), DEADLINE_S, every_s=1.0)
    commands = commands_of_the_page(release.namespace)
    lose, dry_run, (restore, ready, drill) = commands[:6], commands[6], commands[7:]
    for command in lose:
        run(command)

    def can_be_restored() -> bool:
        """Metadata services have noticed, have started again, and storage nodes answer."""
        done = subprocess.run(dry_run, capture_output=True, timeout=DEADLINE_S, check=False)
        print(done.stdout.decode(), done.stderr.decode())
        return done.returncode == 0 and "nodes    3 used" in done.stdout.decode()

    until_sync(can_be_restored, DEADLINE_S, every_s=1.0)
    assert phase(release) == "Running"
    assert "state    done, era 2" in run(restore)
    run(ready)
    until_sync(lambda: phase(release) == "Succeeded", DEADLINE_S, every_s=1.0)
    answered = json.loads(release.kubectl("logs", "load").splitlines()[-1])
    assert (answered["lines"], answered["stored"] + answered["duplicates"]) == (LINES, LINES)
    read = [json.loads(line)["value"] for line in release.oncelog("read", "flights", "-o", "json").splitlines()]
    assert read == [f"line {number}" for number in range(LINES)]
    assert consumed(release, "--idle", "3") == half[HALF:]
    rights = json.loads(release.oncelog("admin", "namespaces", "show", "public/default", "--permissions", "-o", "json"))
    assert rights == {"importer": ["produce"]}
    ttl = json.loads(release.oncelog("admin", "policy", "show", "public/default", "message-ttl", "-o", "json"))
    assert ttl == {"policy": "message-ttl", "value": 604_800, "source": "namespace"}
    assert topics(release) == ["public/default/flights", "public/default/half"]
    assert "state    done" in run(drill)
