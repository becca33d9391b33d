"""Searches of the SDK: forwards and backwards, to a limit, over partitions, and with wrong arguments."""

import pytest
import pytest_asyncio

import oncelog
from oncelog.core.errors import InvalidArgument, TopicNotFound
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio

COUNT = 600


@pytest_asyncio.fixture
async def filled(client: oncelog.AsyncClient) -> str:
    """Orders 0 to 599, in batches of three, with the keys table-0 to table-9 in turn."""
    producer = await client.create_producer("orders", producer_name="till")
    for first in range(0, COUNT, 3):
        numbers = range(first, first + 3)
        values = [b'{"order": %d}' % number for number in numbers]
        await producer.send_many(values, keys=[f"table-{number % 10}" for number in numbers])
    return "orders"


async def orders(search: oncelog.AsyncSearch) -> list[int]:
    async with search:
        return [message.sequence_id async for message in search]


async def test_search_returns_what_all_conditions_hold_for(client: oncelog.AsyncClient, filled: str) -> None:
    """In the order of the log, and it ends although the topic may get more; `progress` says where it has looked."""
    search = await client.search(filled, key="table-7", filter=".order >= 500")
    assert await orders(search) == list(range(507, COUNT, 10))
    assert str(search.progress) == (
        f"searched {COUNT} messages (public/default/orders: index 0 to {COUNT - 1}, of {COUNT}): 10 found"
    )
    assert search.progress.complete
    assert await orders(await client.search(filled, text='"order": 17}')) == [17]
    assert await orders(await client.search(filled, producer_name="nobody")) == []
    assert await orders(await client.search(filled, key=b"table-0", start=oncelog.Index(591))) == []
    assert await orders(await client.search(filled, key=b"table-0", start=oncelog.Index(590))) == [590]


async def test_search_backwards_begins_with_the_newest(client: oncelog.AsyncClient, filled: str) -> None:
    """It looks no further than it must for its limit."""
    search = await client.search(filled, key="table-1", backwards=True, limit=2)
    assert await orders(search) == [591, 581]
    assert search.progress.found == 2, "what it has returned, not all of the step of the log that it has read"
    search = await client.search(filled, limit=2)
    assert await orders(search) == [0, 1]
    assert search.progress.found == 2, "nor all of the batch"
    assert search.progress.looked < COUNT
    assert not search.progress.complete
    search = await client.search(filled, filter=".order < 3", backwards=True)
    assert await orders(search) == [2, 1, 0]
    assert search.progress.complete
    assert search.progress.looked == COUNT


@pytest.mark.parametrize("backwards", [False, True])
async def test_search_ends_at_its_limit_of_bytes(client: oncelog.AsyncClient, filled: str, backwards: bool) -> None:
    """Also where nothing is found, and it says that it has not seen all."""
    search = await client.search(filled, text="not there", bytes_max=100, backwards=backwards)
    assert await orders(search) == []
    assert not search.progress.complete
    assert 100 <= search.progress.looked_bytes < 14 * COUNT


async def test_search_of_a_partitioned_topic_reads_each_partition(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    cluster.partitioned["public/default/orders"] = 3
    producer = await client.create_producer("orders")
    await producer.send_many([b"%d" % number for number in range(30)], sequence_ids=list(range(30)))
    search = await client.search("orders", text="1")
    found = await orders(search)
    assert sorted(found) == [1, *range(10, 20), 21]
    assert [each.topic for each in search.progress.ranges] == [
        f"public/default/orders-partition-{number}" for number in range(3)
    ]


async def test_empty_topic_has_nothing_and_a_missing_one_is_told(client: oncelog.AsyncClient) -> None:
    """A search creates no topic."""
    with pytest.raises(TopicNotFound):
        await client.search("missing")
    await client.create_producer("empty")
    for backwards in (False, True):
        search = await client.search("empty", backwards=backwards)
        assert await orders(search) == []
        assert search.progress.complete


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("key", {"key": 7}),
        ("key", {"key": "k" * 1025}),
        ("text", {"text": b"bytes"}),
        ("text", {"text": ""}),
        ("filter", {"filter": "order = 17"}),
        ("producer_name", {"producer_name": ""}),
        ("limit", {"limit": 0}),
        ("limit", {"limit": True}),
        ("bytes_max", {"bytes_max": -1}),
        ("backwards", {"backwards": 1}),
        ("start", {"backwards": True, "start": oncelog.Index(7)}),
        ("start", {"start": "earliest"}),
        ("on_corrupt", {"on_corrupt": "ignore"}),
    ],
)
async def test_wrong_argument_is_named(client: oncelog.AsyncClient, field: str, given: dict[str, object]) -> None:
    await client.create_producer("orders")
    with pytest.raises(InvalidArgument) as caught:
        await client.search("orders", **given)  # type: ignore[arg-type]
    assert caught.value.details["field"] == field
