"""Producer ids: of this cluster, or of another one."""

import pytest

from oncelog_doors.core.kafka.producer_ids import RaisedEpoch, is_ours, producer_id_of, raised
from tests.core.builders import checksum


def check(data: bytes) -> int:
    return checksum(data, 0)


CLUSTER, OTHER = "3487ecfd29604d96a3d4de8fc4a591d1", "00000000000000000000000000000001"


def test_ids_ascend_and_are_ours() -> None:
    ids = [producer_id_of(number, CLUSTER, check) for number in (1, 2, 3, 1 << 40, 2**55 - 1)]
    assert ids == sorted(ids)
    assert all(is_ours(each, CLUSTER, check) and 0 < each < 2**63 for each in ids)


@pytest.mark.hazard("producer-id-of-another-cluster")
def test_ids_of_another_cluster_are_told_apart() -> None:
    """Those of Kafka are small numbers. One in 256 looks as one of ours."""
    foreign = [producer_id_of(number, OTHER, check) for number in range(1, 1_000)]
    assert sum(is_ours(each, CLUSTER, check) for each in foreign) < 20
    assert sum(is_ours(each, CLUSTER, check) for each in range(10_000)) < 200
    assert not is_ours(-1, CLUSTER, check)
    assert not any(is_ours(each, CLUSTER, check) for each in range(256))


def test_an_epoch_is_raised_until_it_is_used_up() -> None:
    assert raised(512, 0) == RaisedEpoch(512, 1)
    assert raised(512, 32_766) == RaisedEpoch(512, 32_767)
    assert raised(512, 32_767) is None
    assert raised(-1, -1) is None
