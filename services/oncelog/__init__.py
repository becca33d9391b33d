"""Oncelog: a replicated log for messages in which every message takes effect once.

    client = await oncelog.connect("oncelog://127.0.0.1:6650")      # asyncio
    client = oncelog.Client("oncelog://127.0.0.1:6650")             # the same, synchronous

    producer = await client.create_producer("flights", producer_name="importer")
    result = await producer.send(b"...", sequence_id=42)
    reader = await client.create_reader("flights", start=oncelog.EARLIEST)
    async for message in reader: ...
    consumer = await client.subscribe("flights", subscription="billing", start=oncelog.EARLIEST)
    async for message in consumer:
        await consumer.ack(message)

The names are loaded when first used: the cluster's own processes import this package too, and need no SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog import errors
from oncelog.core.formats.message_id import EARLIEST, LATEST, Index, MessageId

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient, connect
    from oncelog.client.consumer import AsyncConsumer
    from oncelog.client.corruption import Skipped
    from oncelog.client.messages import ConsumerBatch, Message, MessageBatch
    from oncelog.client.producer import AsyncProducer
    from oncelog.client.reader import AsyncReader
    from oncelog.client.results import AckResult, BatchResult, SendResult
    from oncelog.client.stream_state import Gap
    from oncelog.client.sync import Client, Consumer, Producer, Reader

#: {name: module that has it}
_LAZY = {
    "AckResult": "oncelog.client.results",
    "AsyncClient": "oncelog.client.client",
    "AsyncConsumer": "oncelog.client.consumer",
    "AsyncProducer": "oncelog.client.producer",
    "AsyncReader": "oncelog.client.reader",
    "BatchResult": "oncelog.client.results",
    "Client": "oncelog.client.sync",
    "Consumer": "oncelog.client.sync",
    "Gap": "oncelog.client.stream_state",
    "Message": "oncelog.client.messages",
    "MessageBatch": "oncelog.client.messages",
    "Producer": "oncelog.client.sync",
    "Reader": "oncelog.client.sync",
    "ConsumerBatch": "oncelog.client.messages",
    "SendResult": "oncelog.client.results",
    "Skipped": "oncelog.client.corruption",
    "connect": "oncelog.client.client",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "AckResult",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReader",
    "BatchResult",
    "Client",
    "Consumer",
    "ConsumerBatch",
    "Gap",
    "Index",
    "Message",
    "MessageBatch",
    "MessageId",
    "Producer",
    "Reader",
    "SendResult",
    "Skipped",
    "connect",
    "errors",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
