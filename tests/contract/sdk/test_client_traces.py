"""The spans of the SDK, made with the application's own tracer provider, and the trace context that messages carry."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import oncelog
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
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


async def test_messages_carry_the_trace_context_of_their_sender(client: oncelog.AsyncClient) -> None:
    """Whatever sends them; a message's own context is kept, and without a span nothing is added."""
    tracer = TracerProvider().get_tracer("application")
    producer = await client.create_producer("flights", trace_context=True)
    with tracer.start_as_current_span("request") as span:
        await producer.send(b"send")
        await asyncio.gather(producer.send_nowait(b"nowait", properties={"a": "b"}))
        await producer.send_many([b"many", b"many"])
        await producer.send_many([b"mixed", b"mixed"], properties=[None, {"traceparent": "of its own"}])
        answered = asyncio.get_running_loop().create_future()
        producer.send_nowait(b"callback", on_result=lambda result, _: answered.set_result(result))
    await answered
    await producer.send(b"later", properties={"a": "b"})
    current = span.get_span_context()
    parent = f"00-{current.trace_id:032x}-{current.span_id:016x}-{current.trace_flags:02x}"
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    messages = [await consumer.receive(timeout=30) for _ in range(8)]
    assert [message.traceparent for message in messages] == [*[parent] * 5, "of its own", parent, None]
    assert messages[1].properties == {"a": "b", "traceparent": parent}
    reader = await client.create_reader("flights")
    assert (await reader.read_next(timeout=30)).traceparent == parent


async def test_trace_context_crosses_to_the_thread_of_a_synchronous_client(cluster: FakeCluster) -> None:
    """The current span is that of the thread that sends."""
    tracer = TracerProvider().get_tracer("application")

    def publish() -> str:
        with oncelog.Client(cluster.url) as own, own.create_producer("flights", trace_context=True) as producer:
            with tracer.start_as_current_span("request") as span:
                producer.send(b"x")
                producer.send_nowait(b"y").result(30)
            return f"{span.get_span_context().span_id:016x}"

    span_id = await asyncio.to_thread(publish)
    async with await oncelog.connect(cluster.url) as client:
        reader = await client.create_reader("flights")
        for _ in range(2):
            assert span_id in ((await reader.read_next(timeout=30)).traceparent or "")


async def test_messages_carry_no_trace_context_unless_they_are_told_to(client: oncelog.AsyncClient) -> None:
    """The same message that is sent again would have other content."""
    producer = await client.create_producer("flights")
    with TracerProvider().get_tracer("application").start_as_current_span("request"):
        await producer.send(b"x")
    assert (await (await client.create_reader("flights")).read_next(timeout=30)).properties == {}
    with pytest.raises(oncelog.errors.InvalidArgument, match="trace_context must be True or False"):
        await client.create_producer("flights", trace_context="yes")  # type: ignore[arg-type]
