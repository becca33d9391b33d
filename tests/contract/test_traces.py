"""Spans are exported when an endpoint is set, against a collector that stores them."""

import asyncio
from typing import Any

import grpc
import pytest

from oncelog.runtime.telemetry import SpanName, Telemetry


@pytest.mark.asyncio
async def test_collector_receives_spans_named_after_their_phases() -> None:
    """A takeover has the same phase names in traces and documents."""
    received: list[bytes] = []

    async def export(request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        received.append(request)
        return b""

    handler: Any = grpc.unary_unary_rpc_method_handler(export)
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        telemetry = Telemetry("topic_owner", "owner-1", otlp_endpoint=f"http://127.0.0.1:{port}")
        with telemetry.span(SpanName.RECOVER, {"topic": "public/default/flights"}):
            telemetry.record_span(SpanName.REPLAY, began_ns=1, ended_ns=2)
        await asyncio.to_thread(telemetry.shut_down)
    finally:
        await server.stop(0)
    sent = b"".join(received)
    assert all(
        word in sent for word in (b"takeover recover", b"takeover replay", b"public/default/flights", b"owner-1")
    )
