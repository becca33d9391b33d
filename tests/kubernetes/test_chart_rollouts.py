"""An upgrade succeeds with as many nodes as an install needs."""

import pytest

from tests.kubernetes.chart import FILES, one, values_of


@pytest.mark.parametrize("name", FILES)
def test_metadata_rolls_without_a_node_for_an_additional_pod(name: str) -> None:
    """With anti-affinity on three nodes, a fourth pod would stay pending, and the upgrade would not finish. If pods
    may share a node, no pod stops before its successor is ready."""
    strategy = one(name, "Deployment", "oncelog-metadata")["spec"]["strategy"]
    alone = values_of(name)["spread"]["nodes"] == "hard"
    default = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": int(alone), "maxSurge": 1}}
    assert strategy == (values_of(name)["metadata"]["updateStrategy"] or default)


def test_production_preset_spreads_pods() -> None:
    """The control: both variants are rendered."""
    assert {values_of(name)["spread"]["nodes"] for name in FILES} >= {"hard", "soft"}
