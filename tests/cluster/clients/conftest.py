"""The cluster of this folder's tests, and another one that is mirrored."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import oncelog
from oncelog.testing import LocalCluster
from tests.cluster.cluster_fixture import DEADLINE_S, shared_cluster

cluster = pytest.fixture(scope="package")(shared_cluster)


@pytest.fixture(scope="package")
def there() -> Iterator[LocalCluster]:
    """The other cluster."""
    with LocalCluster() as other:
        yield other


@pytest_asyncio.fixture
async def source(there: LocalCluster) -> AsyncIterator[oncelog.AsyncClient]:
    """A client of the other cluster."""
    async with await oncelog.connect(there.url, operation_timeout=DEADLINE_S) as client:
        yield client
