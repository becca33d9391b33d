"""The span of the SDK's phase, made with the application's own tracer provider."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import oncelog

pytest_plugins = ["tests.contract.sdk.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def test_each_batch_is_a_span_of_the_applications_provider(client: oncelog.AsyncClient) -> None:
    """An application that uses tracing sees where its batches were built; the SDK sets up no provider."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    producer = await client.create_producer("flights")
    await producer.send(b"one")
    await producer.send(b"two")
    assert [span.name for span in exporter.get_finished_spans()] == ["publish pack", "publish pack"]
