"""Storage nodes are removed, and the volumes of the others replaced in turn under load: no message is lost.

Eight minutes on the current kube context (`make smoke-storage`), in a separate namespace; not part of the default
tests. The tests are steps of one story and run in this order.
"""

import json
import secrets
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster.until import until_sync
from tests.smoke.release import RELEASE, Release, run

LINES = 3_000
NODES = range(3)
#: A few MiB are moved in seconds; the rest is for slow machines.
DEADLINE_S = 600.0


def claim(number: int) -> str:
    return f"data-{RELEASE}-storage-{number}"


class StorageRelease(Release):
    """A release whose number of storage nodes changes."""

    def resize(self, nodes: int, *words: str) -> list[str]:
        """The command that upgrades the release to this number of storage nodes."""
        command = [word for word in self.upgrade() if word != "--wait"]
        return [*command, "--set", f"storage.replicaCount={nodes}", *words]

    def claims(self) -> dict[str, str]:
        """{name: uid} of all volume claims."""
        found = json.loads(self.kubectl("get", "pvc", "-o", "json"))["items"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    def storage_pods(self) -> int:
        """Including those that terminate."""
        labels = [pod["metadata"]["labels"] for pod in self.pods()]
        return sum(each.get("app.kubernetes.io/component") == "storage" for each in labels)

    def log_of(self, pod: str) -> str:
        """The logs of the last two containers of the pod; empty while there is none."""
        words = ["kubectl", "--namespace", self.namespace, "logs", pod]
        logs = [subprocess.run([*words, *more], capture_output=True, check=False) for more in ((), ("--previous",))]
        return "".join(each.stdout.decode() for each in logs if each.returncode == 0)

    def read_all(self) -> None:
        """Every line of the topic is read, once and in order."""
        read = self.oncelog("read", "volumes", "-o", "json").splitlines()
        assert [json.loads(line)["value"] for line in read] == [f"line {number}" for number in range(LINES)]


def refused(command: list[str]) -> str:
    """Run a command that fails. Returns its errors."""
    print("$", *command, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    print(done.stdout, done.stderr, flush=True)
    assert done.returncode != 0
    return done.stderr


@pytest.fixture(scope="module")
def release() -> Iterator[StorageRelease]:
    """A namespace with four storage nodes and a topic. It is deleted at the end, with its volumes."""
    own = StorageRelease(f"oncelog-smoke-{secrets.token_hex(3)}")
    try:
        own.install("--set", "storage.replicaCount=4")
        lines = "".join(f"line {number}\n" for number in range(LINES)).encode()
        own.oncelog("produce", "volumes", "--stdin", stdin=lines)
        yield own
    finally:
        run(["kubectl", "delete", "namespace", own.namespace, "--wait=false", "--ignore-not-found"])


def test_removed_storage_node_is_drained_first(release: StorageRelease) -> None:
    """The upgrade moves its copies to the others. Its volume is kept."""
    before = release.claims()
    run(release.resize(3, "--wait"), timeout_s=DEADLINE_S)
    until_sync(lambda: release.storage_pods() == 3, DEADLINE_S, every_s=1.0, waiting_for="the fourth node to end")
    release.read_all()
    assert release.claims() == before


def test_upgrade_below_the_write_quorum_is_refused(release: StorageRelease) -> None:
    """Two nodes cannot hold three copies, and the stored ledgers have three, whatever the new values say. Nothing
    changes, and the hook's Job has the reason."""
    assert "each copy of an entry needs its own storage node" in refused(release.resize(2, "--wait"))
    fewer = ("--set", "owner.writeQuorum=2,owner.ackQuorum=2")
    assert "pre-upgrade hooks failed" in refused(release.resize(2, "--wait", *fewer))
    reason = release.kubectl("logs", f"job/{RELEASE}-storage-drain")
    assert "2 other storage nodes are left, and a ledger needs 3" in " ".join(reason.split())
    assert release.storage_pods() == 3
    release.read_all()


def test_directory_of_a_removed_node_is_refused(release: StorageRelease) -> None:
    """The kept volume comes back with the fourth pod, which does not start with it."""
    run(release.resize(4))

    def refusal() -> str:
        log = release.log_of(f"{RELEASE}-storage-3")
        return log if "this storage node was decommissioned" in log else ""

    log = until_sync(refusal, DEADLINE_S, every_s=1.0, waiting_for="the refusal in the log of the fourth node")
    assert "start it with another directory, which is empty" in log
    run(release.resize(3, "--wait"), timeout_s=DEADLINE_S)
    until_sync(lambda: release.storage_pods() == 3, DEADLINE_S, every_s=1.0, waiting_for="the fourth node to end")


def test_volumes_of_all_storage_nodes_are_replaced_under_load(release: StorageRelease) -> None:
    """Each time when `may-replace` allows it: pod and claim are deleted, and the new node gets its copies from others.
    This seed chooses each node once."""
    before = release.claims()
    release.chaos("--kinds", "storage-loss", "--seconds", "135", "--seed", "11")
    after = release.claims()
    assert [number for number in NODES if after[claim(number)] == before[claim(number)]] == []
    release.read_all()


def test_flipped_bits_lose_no_message(release: StorageRelease) -> None:
    """In the segments of storage nodes, which start with the damage and get well by repair."""
    release.chaos("--kinds", "bit-rot", "--seconds", "70", "--seed", "11")
    release.read_all()
