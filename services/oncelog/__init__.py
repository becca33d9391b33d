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

The names are loaded when first used: the cluster's own processes import this package too, and need no SDK. `process`
and `run` are those of `oncelog_effects`, which is installed beside this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog import errors
from oncelog.core.formats.message_id import EARLIEST, LATEST, Index, MessageId
from oncelog.runtime import forks as _forks  # noqa: F401  # before gRPC is loaded

if TYPE_CHECKING:
    from oncelog.client.client import AsyncClient
    from oncelog.client.connecting import connect
    from oncelog.client.consuming.consumer import AsyncConsumer
    from oncelog.client.consuming.handler_run import Retry
    from oncelog.client.producing.leases import LeaseWanted, ProducerLease
    from oncelog.client.producing.producer import AsyncProducer
    from oncelog.client.reading.finding import FoundMessage
    from oncelog.client.reading.reader import AsyncReader
    from oncelog.client.reading.search import AsyncSearch
    from oncelog.client.reading.stream_state import Gap
    from oncelog.client.sync import Client, Consumer, Producer, Reader, Search
    from oncelog.client.values.consumer_batch import ConsumerBatch
    from oncelog.client.values.corruption import Skipped
    from oncelog.client.values.encrypted import EncryptedMessage
    from oncelog.client.values.messages import Message, MessageBatch
    from oncelog.client.values.results import AckResult, BatchResult, PublishResult, SendResult
    from oncelog_effects.processes import process
    from oncelog_effects.programs.program import run

#: The distribution that has `process` and `run`.
_EFFECTS = "oncelog_effects"
#: {name: module that has it}
_LAZY = {
    "AckResult": "oncelog.client.values.results",
    "AsyncClient": "oncelog.client.client",
    "AsyncConsumer": "oncelog.client.consuming.consumer",
    "AsyncProducer": "oncelog.client.producing.producer",
    "AsyncReader": "oncelog.client.reading.reader",
    "AsyncSearch": "oncelog.client.reading.search",
    "BatchResult": "oncelog.client.values.results",
    "Client": "oncelog.client.sync",
    "Consumer": "oncelog.client.sync",
    "EncryptedMessage": "oncelog.client.values.encrypted",
    "FoundMessage": "oncelog.client.reading.finding",
    "Gap": "oncelog.client.reading.stream_state",
    "LeaseWanted": "oncelog.client.producing.leases",
    "Message": "oncelog.client.values.messages",
    "MessageBatch": "oncelog.client.values.messages",
    "Producer": "oncelog.client.sync",
    "ProducerLease": "oncelog.client.producing.leases",
    "PublishResult": "oncelog.client.values.results",
    "Reader": "oncelog.client.sync",
    "ConsumerBatch": "oncelog.client.values.consumer_batch",
    "Retry": "oncelog.client.consuming.handler_run",
    "Search": "oncelog.client.sync",
    "SendResult": "oncelog.client.values.results",
    "Skipped": "oncelog.client.values.corruption",
    "connect": "oncelog.client.connecting",
    "process": "oncelog_effects.processes",
    "run": "oncelog_effects.programs.program",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "AckResult",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReader",
    "AsyncSearch",
    "BatchResult",
    "Client",
    "Consumer",
    "ConsumerBatch",
    "EncryptedMessage",
    "FoundMessage",
    "Gap",
    "Index",
    "LeaseWanted",
    "Message",
    "MessageBatch",
    "MessageId",
    "Producer",
    "ProducerLease",
    "PublishResult",
    "Reader",
    "Retry",
    "Search",
    "SendResult",
    "Skipped",
    "connect",
    "errors",
    "process",
    "run",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if error.name != _EFFECTS:
            raise
        from oncelog.runtime.installation import install_command

        command = install_command(_EFFECTS)
        raise ModuleNotFoundError(f"oncelog.{name} needs {_EFFECTS}: {command}", name=_EFFECTS) from None


def __dir__() -> list[str]:
    return __all__
