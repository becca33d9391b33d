"""Each kind of storage fault in a random order under load: nothing is lost, and all copies are restored."""

from collections.abc import Iterator
from itertools import islice

import pytest

import oncelog
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.plan import FaultKind, plan_faults
from tests.fault_proof.random_faults import DEADLINE_S, SETTINGS, RandomFaults

pytestmark = [pytest.mark.asyncio, pytest.mark.limit_s(1800)]

#: In its first round an owner and a metadata replica are killed, too, each once.
SEED = 312


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("random"), metadata=2, **SETTINGS) as own:
        yield own


async def test_random_faults_lose_no_message(cluster: FaultyCluster) -> None:
    """`python -m tests.fault_proof --seed 312` begins with the same faults: one of each kind."""
    faults = list(islice(plan_faults(SEED, nodes=len(cluster.storage_names)), len(FaultKind)))
    assert sorted(role for fault in faults for role in fault.also) == ["metadata", "owner"]
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        result = await RandomFaults(cluster, client, print).round("random-faults", faults)
    print(f"{len(result.faults)} faults in {result.seconds:.0f} s")
    assert result.messages > 0
    assert result.faults == faults
