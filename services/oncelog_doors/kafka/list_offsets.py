"""ListOffsets: where the log of a partition begins and ends, and where a time is in it."""

import asyncio

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog_doors.core.kafka.error_codes import code_of
from oncelog_doors.kafka.asking import LOOKUPS_AT_ONCE, Asking, log_of
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.ports import FoundOffset

#: What clients send in the place of a time.
_END, _FIRST = -1, -2
_NO_TIME = -1


async def list_offsets(around: Asking, asked: Body) -> Body:
    """The body of the answer."""
    places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def one(name: str, partition: Body) -> Body:
        async with places:
            try:
                found = await _find(around, name, partition["partition_index"], partition["timestamp"])
            except OncelogError as error:
                return {"partition_index": partition["partition_index"], "error_code": code_of(error)}
            return {
                "partition_index": partition["partition_index"],
                "offset": found.offset,
                "timestamp": found.timestamp_ms,
            }

    async def of_topic(topic: Body) -> Body:
        found = await asyncio.gather(*(one(topic["name"], each) for each in topic["partitions"]))
        return {"name": topic["name"], "partitions": found}

    return {"topics": await asyncio.gather(*map(of_topic, asked["topics"]))}


async def _find(around: Asking, name: str, index: int, time_ms: int) -> FoundOffset:
    log = await log_of(around, name, index)
    if time_ms >= 0:
        return await around.cluster.offset_at(log, around.caller, time_ms)
    if time_ms not in (_END, _FIRST):
        raise InvalidArgument(f"time {time_ms} is neither -1, the end, nor -2, the first offset", field="timestamp")
    bounds = await around.cluster.bounds(log, around.caller)
    return FoundOffset(bounds.end if time_ms == _END else bounds.first, _NO_TIME)
