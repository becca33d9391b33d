"""A cluster is created only after all storage nodes have answered that their directories are empty."""

import pytest

from oncelog.core.placement.first_cluster import Answers, DirectorySeen, NoAnswer, creation_refusal, other_cluster

pytestmark = pytest.mark.hazard("emptied-zookeeper")

EMPTY, FULL, SILENT = DirectorySeen(""), DirectorySeen("c" * 32), NoAnswer("Connection refused")


def test_cluster_is_created_when_all_directories_are_empty() -> None:
    """The only proof that there was none."""
    assert creation_refusal({"a:1": EMPTY, "b:1": EMPTY}) is None


def test_one_directory_with_data_refuses_the_creation() -> None:
    """The others may have got new disks, or not answer. The reason names the node, its cluster, and what to do."""
    for others in ({"b:1": EMPTY}, {"b:1": SILENT}):
        refusal = creation_refusal({**others, "a:1": FULL})
        assert refusal is not None
        assert all(part in refusal for part in ("a:1", "c" * 32, "has lost its data", "oncelog admin backup restore"))


def test_node_that_does_not_answer_refuses_the_creation() -> None:
    """It may have data. The reason names it."""
    refusal = creation_refusal({"a:1": EMPTY, "b:1": SILENT})
    assert refusal is not None
    assert "b:1 (Connection refused)" in refusal
    assert "a:1" not in refusal


def test_no_node_proves_nothing() -> None:
    """An empty list, as by a mistake in the settings."""
    assert creation_refusal({}) is not None


@pytest.mark.hazard("older-zookeeper-is-served")
def test_cluster_that_only_directories_of_another_one_know_is_not_theirs() -> None:
    """It was created in the emptied ZooKeeper. Silence, or one directory that is of it, does not show that."""
    own = DirectorySeen("d" * 32)
    refusal = other_cluster({"a:1": FULL, "b:1": EMPTY, "c:1": SILENT}, own.cluster_id)
    assert refusal is not None
    assert all(part in refusal for part in ("a:1", "c" * 32, "d" * 32, "oncelog admin backup restore"))
    nothing: tuple[Answers, ...] = ({}, {"a:1": EMPTY, "b:1": SILENT}, {"a:1": FULL, "b:1": own})
    for answers in nothing:
        assert other_cluster(answers, own.cluster_id) is None
