"""In which thread an owner checks batches of gateways' clients: a change of threads costs as much as most checks."""

import threading
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch import BatchHeader, Buffer
from oncelog.core.formats.batch_check import BatchLimits
from oncelog.core.formats.checks.short_checks import SHORT_BYTES_MAX, SHORT_COUNT_MAX
from oncelog.core.ids import SessionNumber
from oncelog.rpc.codecs.owner_codec import ReceivedPublish
from oncelog.topic_owner.streams.batch_checks import BatchChecks, Checked
from tests.core.kafka_batches import Sent, as_batch, framed, records

SESSION = SessionNumber(1)
pytestmark = pytest.mark.asyncio

SMALL = [Sent(b"x", headers=[(b"trace", b"1")])]
LARGE = [Sent(bytes(1024 + n)) for n in range(2 * SHORT_BYTES_MAX // 1024)]
LARGE_NOT_PLAIN = [*LARGE, *SMALL]
MANY = [Sent(b"x")] * (SHORT_COUNT_MAX + 1)


def stored(sent: list[Sent], *, count: int | None = None) -> memoryview:
    """As a gateway sends it. count: that the record batch states."""
    entry = framed(records(sent), len(sent) if count is None else count, by=crc32c)
    return memoryview(as_batch(entry, range(len(sent)), by=crc32c))


async def checked(*batches: memoryview) -> tuple[list[Checked], bool]:
    """(results of one frame, whether another thread took part)."""
    threads: set[int] = set()

    def checksum(data: Buffer, value: int) -> int:
        threads.add(threading.get_ident())
        return crc32c(data, value)

    checks = BatchChecks(checksum, BatchLimits(1_000_000), level=lambda: 9)
    frame = ReceivedPublish([SESSION] * len(batches), list(range(len(batches))), list(batches), [], [])
    found = await checks.check(frame, {SESSION: SimpleNamespace(producer_name="shop")})
    return found, threads != {threading.get_ident()}


@pytest.mark.parametrize(
    ("sent", "elsewhere"), [(SMALL, False), (LARGE, False), (LARGE_NOT_PLAIN, True), (MANY, True)],
    ids=["small", "large, but few plain records", "large, not plain", "many"],
)  # fmt: skip
async def test_only_a_batch_that_takes_long_is_checked_in_another_thread(sent: list[Sent], elsewhere: bool) -> None:
    [found], other_thread = await checked(stored(sent))
    assert isinstance(found, BatchHeader)
    assert found.count == len(sent)
    assert other_thread == elsewhere


async def test_results_are_in_the_order_of_the_frame_whatever_thread_has_them() -> None:
    """Good, refused, long, refused though long, good."""
    batches = [stored(LARGE), stored(SMALL, count=2), stored(MANY), stored(MANY, count=len(MANY) + 1), stored(SMALL)]
    found, other_thread = await checked(*batches)
    assert other_thread
    assert [each.count if isinstance(each, BatchHeader) else type(each) for each in found] == [
        len(LARGE), InvalidBatch, len(MANY), InvalidBatch, 1,
    ]  # fmt: skip
