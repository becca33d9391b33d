"""Each kind of storage fault twice, in a random order, under load: nothing is lost, and all copies are restored."""

from collections.abc import Iterator
from itertools import islice

import pytest

import oncelog
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.plan import FaultKind, plan_faults
from tests.fault_proof.random_faults import DEADLINE_S, SETTINGS, RandomFaults

pytestmark = pytest.mark.asyncio

SEED = 1
ROUNDS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("random"), metadata=2, **SETTINGS) as own:
        yield own


async def test_random_faults_lose_no_message(cluster: FaultyCluster) -> None:
    """`python -m tests.fault_proof --seed 1` begins with the same faults. A round has one fault of each kind."""
    plan = plan_faults(SEED, nodes=len(cluster.storage_names))
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        run = RandomFaults(cluster, client, print)
        for number in range(ROUNDS):
            result = await run.round(f"random-faults-{number}", islice(plan, len(FaultKind)))
            print(f"{len(result.faults)} faults in {result.seconds:.0f} s")
            assert result.messages > 0
            assert len(result.faults) == len(FaultKind)
