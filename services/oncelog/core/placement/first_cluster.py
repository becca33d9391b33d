"""Whether a ZooKeeper without a cluster is a new one, or has lost its data: the storage nodes know (hazard
emptied-zookeeper).

Rules
- A storage node formats its directory for a cluster that exists, so a directory that belongs to one proves that there
  was one. Then no cluster may be created: its topics would begin without the data of the former ones.
- A node that does not answer may hold such a directory, so all nodes must have answered that theirs are empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectorySeen:
    """What a storage node has answered. cluster_id: of its directory; empty: the directory is empty. address: host:port
    of its gRPC; empty: it did not say."""

    cluster_id: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no answer."""

    reason: str


#: What to do when a cluster existed, but ZooKeeper has no record of it, or an older one.
RESTORE = "keep the data of all storage nodes, and run `oncelog admin backup restore`"
Answers = Mapping[str, DirectorySeen | NoAnswer]


def other_cluster(answers: Answers, cluster_id: str) -> str | None:
    """Why the cluster with this id, which no storage node has joined, was created in a ZooKeeper that had lost the one
    of the storage nodes; None: nothing shows it."""
    seen = {node: answer for node, answer in answers.items() if isinstance(answer, DirectorySeen) and answer.cluster_id}
    if not seen or any(answer.cluster_id == cluster_id for answer in seen.values()):
        return None
    node, answer = next(iter(seen.items()))
    return (
        f"ZooKeeper has cluster {cluster_id}, which no storage node has joined, and storage node {node} has data of "
        f"cluster {answer.cluster_id}: ZooKeeper has lost its data, and another cluster was created in it, or its "
        f"address or path is wrong. Correct it, or use another path, which is empty; {RESTORE}"
    )


def creation_refusal(answers: Answers) -> str | None:
    """Why no cluster may be created; None: it is the first one. answers: by the address of each storage node."""
    if not answers:
        return "no storage node is named that could prove that this cluster is new"
    for node, answer in answers.items():
        if isinstance(answer, DirectorySeen) and answer.cluster_id:
            return (
                f"ZooKeeper has no record of a cluster, but storage node {node} has data of cluster "
                f"{answer.cluster_id}: ZooKeeper has lost its data, or its address or path is wrong. No cluster is "
                f"created: {RESTORE}"
            )
    silent = [f"{node} ({answer.reason})" for node, answer in answers.items() if isinstance(answer, NoAnswer)]
    if silent:
        return (
            "ZooKeeper has no record of a cluster, and one is created only when all storage nodes have answered that "
            f"their directories are empty; no answer from {', '.join(silent)}"
        )
    return None
