"""Messages that were not stored because their ids are known, or may be: errors unless the application accepts them."""

import pytest

import oncelog
from oncelog.core.errors import (
    ContentDiffers,
    InvalidArgument,
    UnverifiedSequence,
)
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def _many_batches(producer: oncelog.AsyncProducer, ids: range) -> None:
    """A batch for each id, until the owner has forgotten the first ones."""
    for number in ids:
        await producer.send(b"v", sequence_id=number)


async def test_unverified_message_is_logged_as_a_warning(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids began again from below: each message is lost, and nobody looks at the results. Said once, with the ids."""
    producer = await client.create_producer("flights", producer_name="importer", on_unverified="accept")
    await _many_batches(producer, range(1_000, 1_000 + RECENT_BATCHES_MAX + 1))
    assert producer.unverified_count == 0
    result = await producer.send_many([b"lost"] * 8, sequence_ids=range(8))
    assert (result.verified, result.unverified_ranges, result.duplicates) == (False, [range(8)], 8)
    assert not (await producer.send(b"lost", sequence_id=8)).verified
    (warning,) = [record for record in caplog.records if record.name == "oncelog.client.unverified"]
    assert warning.levelname == "WARNING"
    for word in ("'importer'", "public/default/flights", "8 messages", "0, 1, 2, 3, 4 … 7", "they are lost"):
        assert word in warning.message
    assert producer.unverified_count == 9


async def test_unverified_message_is_an_error(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """What may be lost is an error unless the application accepts it. Only these messages fail, and the error says what
    to do; whether they are stored stays unknown."""
    producer = await client.create_producer("flights", producer_name="importer")
    await _many_batches(producer, range(1_000, 1_000 + RECENT_BATCHES_MAX + 1))
    with pytest.raises(UnverifiedSequence) as caught:
        await producer.send(b"lost", sequence_id=3)
    assert caught.value.stored is None
    for word in ("begin behind last_sequence_id", "on_unverified='accept'"):
        assert word in caught.value.message
    last = 1_000 + RECENT_BATCHES_MAX
    with pytest.raises(UnverifiedSequence, match="1 of 3 messages failed") as caught:
        await producer.send_many([b"a", b"b", b"c"], sequence_ids=[4, last, last + 1])
    result: oncelog.BatchResult = caught.value.result
    assert (result.failed_ranges, result.duplicate_ranges) == ([range(1)], [range(1, 2)])
    assert producer.unverified_count == 2
    with pytest.raises(InvalidArgument):
        await client.create_producer("flights", on_unverified="ignore")  # type: ignore[arg-type]


@pytest.mark.hazard("other-content")
async def test_other_content_under_a_stored_id_is_an_error(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A program that begins again at 0 with other messages would lose them in silence. The error has the position of
    the first copy; the producer goes on, and the same content is a duplicate."""
    producer = await client.create_producer("flights", producer_name="importer")
    first = await producer.send(b"monday", sequence_id=0)
    await producer.send_many([b"a", b"b"], sequence_ids=[1, 2])
    producer = await client.create_producer("flights", producer_name="importer")
    again = await producer.send(b"monday", sequence_id=0)
    assert (again.duplicate, again.content_differs, again.message_id) == (True, False, first.message_id)
    with pytest.raises(ContentDiffers) as caught:
        await producer.send(b"tuesday", sequence_id=0)
    assert caught.value.stored is False
    assert caught.value.details == {"message_id": str(first.message_id)}
    for word in (str(first.message_id), "above last_sequence_id", "on_content_differs='accept'", "stored nothing"):
        assert word in caught.value.message
    with pytest.raises(ContentDiffers, match="at least one differs") as caught:
        await producer.send_many([b"a", b"other"], sequence_ids=[1, 2])
    assert caught.value.stored is None, "the other one may be stored as it is"
    assert caught.value.result.failed_ranges == [range(2)]
    unknown = await producer.send(b"other", sequence_id=2)
    assert (unknown.duplicate, unknown.content_differs) == (True, None), "of a part of a batch nothing is remembered"
    assert (await producer.send(b"new", sequence_id=3)).content_differs is None
    assert cluster.topic("flights").values() == [b"monday", b"a", b"b", b"new"]


@pytest.mark.hazard("other-content")
async def test_other_content_can_be_accepted(client: oncelog.AsyncClient) -> None:
    """By a program whose messages say when they were sent: the first copy stands for the others."""
    producer = await client.create_producer("flights", producer_name="importer", on_content_differs="accept")
    first = await producer.send(b"at 12:00", sequence_id=0)
    again = await producer.send(b"at 12:01", sequence_id=0)
    assert (again.duplicate, again.content_differs, again.message_id) == (True, True, first.message_id)
    await producer.send_many([b"a", b"b"], sequence_ids=[1, 2], event_times_ms=[5, 5])
    result = await producer.send_many([b"a", b"b"], sequence_ids=[1, 2], event_times_ms=[6, 6])
    assert (result.duplicate_ranges, result.differing_ranges) == ([range(2)], [range(2)])
    traced = await client.create_producer("flights", producer_name="importer", trace_context=True)
    assert (await traced.send(b"at 12:02", sequence_id=0)).content_differs is None, "its trace differs each time"
    with pytest.raises(InvalidArgument):
        await client.create_producer("flights", on_content_differs="ignore")  # type: ignore[arg-type]


@pytest.mark.hazard("other-content")
async def test_unknown_content_is_shown_and_logged_as_a_warning(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A list cannot be compared with messages that were sent one by one: other messages counted as duplicates, and
    nothing showed that their content is unknown. Said once for each producer, with the ids."""
    producer = await client.create_producer("flights", producer_name="importer")
    for number in range(1, 6):
        await producer.send(b"original", sequence_id=number)
    again = await producer.send_many([b"original"], sequence_ids=[5])
    assert (again.unknown, again.unknown_ranges) == (0, [])
    assert not _unknown_content(caplog)
    result = await producer.send_many([b"X", b"Y", b"new"], sequence_ids=[3, 4, 6])
    assert (result.duplicates, result.unknown, result.unknown_ranges) == (2, 2, [range(2)])
    assert repr(result) == "BatchResult(first=3, last=6, count=3, duplicates=2, unknown=2, failed=0)"
    assert (await producer.send_many([b"X", b"Y"], sequence_ids=[1, 2])).unknown == 2
    (warning,) = _unknown_content(caplog)
    for word in ("'importer'", "public/default/flights", "2 messages", "3, 4", "one by one", "they are lost"):
        assert word in warning
    assert cluster.topic("flights").values() == [b"original"] * 5 + [b"new"]


async def test_unknown_content_is_no_warning_where_other_content_is_accepted(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a program has said that the first copy stands for all others."""
    producer = await client.create_producer("flights", producer_name="importer", on_content_differs="accept")
    await producer.send(b"a", sequence_id=0)
    await producer.send(b"b", sequence_id=1)
    assert (await producer.send_many([b"a", b"other"], sequence_ids=[0, 1])).unknown == 2
    assert not _unknown_content(caplog)


def _unknown_content(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "oncelog.client.unknown_content"]
