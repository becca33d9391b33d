"""Each kind of storage fault once, in a random order, under load: nothing is lost, and all copies are restored."""

from collections.abc import Iterator
from itertools import islice

import pytest

import oncelog
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.plan import FaultKind, plan_faults
from tests.fault_proof.random_faults import SETTINGS, RandomFaults

pytestmark = pytest.mark.asyncio

SEED = 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("random"), metadata=2, **SETTINGS) as own:
        yield own


async def test_random_faults_lose_no_message(cluster: FaultyCluster) -> None:
    """`python -m tests.fault_proof --seed 1` begins with the same faults."""
    faults = islice(plan_faults(SEED, nodes=3), len(FaultKind))
    async with await oncelog.connect(cluster.url, operation_timeout=180.0) as client:
        result = await RandomFaults(cluster, client, print).round("random-faults", faults)
    assert result.messages > 0
    assert len(result.faults) == len(FaultKind)
