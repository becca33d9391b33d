"""Health over a real socket: reasons as JSON, metrics as text; malformed input affects only its connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.health import Health
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.telemetry import Reading, SpanName, Telemetry


@asynccontextmanager
async def _serving(open_to: HttpHosts | None = None) -> AsyncIterator[tuple[Health, int]]:
    health = Health(lambda: b"up 1\n", open_to)
    port = await health.start(host="127.0.0.1", port=0)
    async with asyncio.timeout(60):
        try:
            yield health, port
        finally:
            await health.stop()


async def _ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    data = await reader.read()
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body


async def _get(port: int, path: str) -> tuple[int, Any]:
    status, _, body = await _ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, json.loads(body)


@pytest.mark.asyncio
async def test_process_without_a_complaint_is_live_and_ready() -> None:
    """Also if the probe's URL has a query."""
    async with _serving() as (health, port):
        health.live_when("journal", lambda: None)
        health.ready_when("zookeeper", lambda: None)
        assert await _get(port, "/livez") == (200, {"status": "ok", "reasons": {}})
        assert await _get(port, "/readyz?verbose") == (200, {"status": "ok", "reasons": {}})


@pytest.mark.asyncio
async def test_complaint_is_reported_by_name() -> None:
    """A process that is not ready may be live; a process that is not live is not ready."""
    reasons: dict[str, str] = {"zookeeper": "not connected"}
    async with _serving() as (health, port):
        health.live_when("journal", lambda: reasons.get("journal"))
        health.ready_when("zookeeper", lambda: reasons.get("zookeeper"))
        assert await _get(port, "/livez") == (200, {"status": "ok", "reasons": {}})
        assert await _get(port, "/readyz") == (503, {"status": "failed", "reasons": reasons})
        reasons["journal"] = "fsync failed"
        assert await _get(port, "/livez") == (503, {"status": "failed", "reasons": {"journal": "fsync failed"}})
        assert await _get(port, "/readyz") == (503, {"status": "failed", "reasons": reasons})


@pytest.mark.asyncio
async def test_metrics_are_text_and_head_has_no_body() -> None:
    """As Prometheus and curl -I ask."""
    async with _serving() as (_, port):
        status, headers, body = await _ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (status, body) == (200, b"up 1\n")
        assert headers["Content-Type"].startswith("text/plain")
        status, headers, body = await _ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (status, headers["Content-Length"], body) == (200, "5", b"")


@pytest.mark.asyncio
@pytest.mark.parametrize(("request_line", "status"), [(b"GET /x HTTP/1.1", 404), (b"POST /livez HTTP/1.1", 405)])
async def test_other_requests_are_refused(request_line: bytes, status: int) -> None:
    """With the status code for the reason."""
    async with _serving() as (_, port):
        assert (await _ask(port, request_line + b"\r\n\r\n"))[0] == status


@pytest.mark.asyncio
@pytest.mark.parametrize("noise", [b"", b"\x00" * 100_000, b"GET /livez HTTP/1.1\r\n", b"\r\n\r\n"])
async def test_malformed_input_ends_only_its_connection(noise: bytes) -> None:
    """Port scanners must not make a process unhealthy."""
    async with _serving() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(noise)
        writer.write_eof()
        try:
            await reader.read()
        except ConnectionError:
            pass  # it hung up with our bytes unread
        writer.close()
        assert (await _get(port, "/livez"))[0] == 200


@pytest.mark.asyncio
async def test_port_in_use_is_an_error() -> None:
    """The error names the port and comes before the process serves requests."""
    async with _serving() as (_, port):
        with pytest.raises(InvalidArgument, match="in use"):
            await Health(lambda: b"", None).start(host="127.0.0.1", port=port)


def test_metrics_are_collected_at_each_request_with_their_names() -> None:
    """Counters show the integers of the hot path; latencies have our buckets."""
    telemetry = Telemetry("topic_owner", "owner-1")
    verdicts = {"accepted": 3, "duplicate": 1}
    telemetry.observe_count(
        "verdicts", "batches by verdict", lambda: [Reading(n, {"verdict": v}) for v, n in verdicts.items()]
    )
    telemetry.observe_level("topics", "topics owned", lambda: 2)
    telemetry.latency("publish_latency", "from receive to confirm").record(0.0025, {"topic": "t"})
    verdicts["duplicate"] = 7
    text = telemetry.metrics_text().decode()
    assert 'oncelog_verdicts_total{verdict="accepted"} 3.0' in text
    assert 'oncelog_verdicts_total{verdict="duplicate"} 7.0' in text
    assert "oncelog_topics 2.0" in text
    assert 'oncelog_publish_latency_seconds_bucket{le="0.003",topic="t"} 1.0' in text
    assert 'oncelog_publish_latency_seconds_bucket{le="0.002",topic="t"} 0.0' in text
    telemetry.shut_down()


def test_services_in_one_process_have_separate_metrics() -> None:
    """Tests and the standalone cluster start several services in one process."""
    first, second = Telemetry("a", "1"), Telemetry("a", "2")
    first.observe_level("topics", "topics owned", lambda: 1)
    assert b"oncelog_topics" not in second.metrics_text()


def test_spans_without_an_endpoint_record_nothing() -> None:
    """Tracing is off by default and then costs nothing."""
    telemetry = Telemetry("a", "1")
    with telemetry.span(SpanName.CHECK, {"topic": "t"}) as span:
        assert not span.is_recording()
    telemetry.record_span(SpanName.REPLAY, began_ns=1, ended_ns=2)
    telemetry.shut_down()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (["Host: 10.0.0.7:8081"], 200),
        (["Host: localhost"], 200),
        ([], 200),
        (["host: attacker.example:8081"], 403),
        (["Host: localhost", "Sec-Fetch-Site: cross-site"], 403),
        (["Host: localhost", "Origin: https://attacker.example"], 403),
    ],
)
@pytest.mark.asyncio
@pytest.mark.hazard("forged-form")
async def test_page_of_another_origin_reads_nothing_without_authentication(head: list[str], status: int) -> None:
    """It could make a name of its own point to this address. Probes and Prometheus connect by address."""
    async with _serving(HttpHosts()) as (_, port):
        answered, _, body = await _ask(port, "\r\n".join(["GET /metrics HTTP/1.1", *head, "", ""]).encode())
        assert answered == status
        assert (b"ONCELOG_AUTH_KEY_FILE" in body) == (status == 403)
