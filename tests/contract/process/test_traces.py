"""Spans are exported when an endpoint is set, against a collector that stores them."""

import asyncio
import json
import os
import subprocess
import sys
from importlib.metadata import version
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


def test_spans_name_version_release_and_pod_and_are_sampled() -> None:
    """By OpenTelemetry's own variables, as the chart sets them, and without them all spans are exported."""
    code = (
        "import json\n"
        "from oncelog.runtime.telemetry import Telemetry\n"
        "tracer = Telemetry.from_environment('topic_owner', 'owner-1').tracer\n"
        "print(json.dumps([dict(tracer.resource.attributes), tracer.sampler.get_description()]))\n"
    )
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    chosen = {
        "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=prod,k8s.pod.name=prod-owner-0",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }
    for variables, sampler in (({}, "AlwaysOnSampler"), (chosen, "TraceIdRatioBased{0.25}")):
        environment = {**os.environ, **endpoint, **variables}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        attributes, description = json.loads(done.stdout)
        assert attributes["service.version"] == version("oncelog")
        assert (attributes["service.name"], attributes["service.instance.id"]) == ("topic_owner", "owner-1")
        assert sampler in description
        assert (attributes.get("service.namespace"), attributes.get("k8s.pod.name")) == (
            ("prod", "prod-owner-0") if variables else (None, None)
        )
