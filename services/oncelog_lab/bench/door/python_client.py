"""Pulsar's client for Python in the process of the benchmark. Its calls wait, so each runs in a thread."""

import asyncio
import time
from importlib import import_module
from typing import Any

from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.failures import LabFailed
from oncelog_lab.peer_bench.comparison import installed_version
from oncelog_lab.peer_bench.peer_client import AT_ONCE, LoadFailed, PulsarClient, publish_callbacks, publish_paced
from oncelog_lab.peer_bench.pulsar import CLIENT
from oncelog_lab.values import make_values

_WAIT_MS = 60_000


class PythonClient:
    def __init__(self, url: str) -> None:
        """Raises LabFailed."""
        if installed_version(CLIENT) is None:
            raise LabFailed(f"{CLIENT} is not installed: pip install {CLIENT}")
        self._url = url
        self._pulsar: Any = import_module("pulsar")

    async def publish(
        self, topic: str, meter: CpuMeter, *, message_bytes: int, seconds: float, lone: bool
    ) -> tuple[int, float]:
        """With a callback for each message. Returns (messages, seconds). lone: without batches. Raises LabFailed."""
        return await asyncio.to_thread(self._publish, topic, meter, message_bytes, seconds, lone)

    def _publish(
        self, topic: str, meter: CpuMeter, message_bytes: int, seconds: float, lone: bool
    ) -> tuple[int, float]:
        client = self._client(lone=lone)
        try:
            client.open_topic(topic)
            began = time.perf_counter()
            with meter:
                (rate,) = publish_callbacks(client, make_values(message_bytes, AT_ONCE), seconds)
            took = time.perf_counter() - began
        except LoadFailed as error:
            raise LabFailed(str(error)) from error
        finally:
            client.close()
        return round(rate * took), took

    async def p50_ms(self, topic: str, *, message_bytes: int, seconds: float) -> float:
        """Of single messages at a fixed rate. Raises LabFailed."""
        return await asyncio.to_thread(self._p50_ms, topic, message_bytes, seconds)

    def _p50_ms(self, topic: str, message_bytes: int, seconds: float) -> float:
        client = self._client(lone=True)
        try:
            client.open_topic(topic)
            return publish_paced(client, make_values(message_bytes, 1), seconds)[0]
        except LoadFailed as error:
            raise LabFailed(str(error)) from error
        finally:
            client.close()

    async def read(self, topic: str, total: int, meter: CpuMeter) -> tuple[int, float]:
        """Returns (messages, seconds). Raises LabFailed."""
        return await asyncio.to_thread(self._read, topic, total, meter)

    def _read(self, topic: str, total: int, meter: CpuMeter) -> tuple[int, float]:
        client = self._client(lone=True)
        began = time.perf_counter()
        try:
            with meter:
                found = client.read_objects(topic, total)
        finally:
            client.close()
        if found != total:
            raise LabFailed(f"{topic} has {total} messages, but {found} were read")
        return total, time.perf_counter() - began

    async def consume(self, topic: str, total: int, meter: CpuMeter) -> tuple[int, float]:
        """A shared consumer that acknowledges each message. Returns (messages, seconds). Raises LabFailed."""
        return await asyncio.to_thread(self._consume, topic, total, meter)

    def _consume(self, topic: str, total: int, meter: CpuMeter) -> tuple[int, float]:
        client = self._pulsar.Client(self._url, logger=self._logger())
        began = time.perf_counter()
        try:
            consumer = client.subscribe(
                topic, f"bench-{time.time_ns()}", self._pulsar.ConsumerType.Shared,
                initial_position=self._pulsar.InitialPosition.Earliest,
            )  # fmt: skip
            with meter:
                for _ in range(total):
                    consumer.acknowledge(consumer.receive(_WAIT_MS))
                consumer.close()  # sends the last acknowledgements
        except self._pulsar.PulsarException as error:
            raise LabFailed(f"{topic} was not consumed: {error}") from error
        finally:
            client.close()
        return total, time.perf_counter() - began

    def _logger(self) -> Any:
        """Standard output is for figures."""
        return self._pulsar.ConsoleLogger(self._pulsar.LoggerLevel.Error)

    def _client(self, *, lone: bool) -> PulsarClient:
        return PulsarClient(self._url, lone=lone, logger=self._logger())
