"""Metrics and traces of a process, through OpenTelemetry.

Prometheus reads the metrics (`Telemetry.metrics_text`, served at /metrics). Traces are exported only when
OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise spans cost next to nothing.

Rule: hot paths count in plain integers, which `observe_count` and `observe_level` read when the metrics are scraped. An
instrument called for every batch would cost more than the check of the batch.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Span, Tracer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
METRICS_CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
#: Upper bounds in seconds: dense in the range of a publish (1 to 10 ms), and up to a slow takeover.
LATENCY_BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip

Attributes = Mapping[str, str | int | float | bool]


class SpanName(Enum):
    """The phases of a publish, of a message on its way to a consumer, and of a takeover, as spans."""

    PACK = "publish pack"
    RECEIVE = "publish receive"
    CHECK = "publish check"
    APPEND = "publish append"
    CONFIRM = "publish confirm"
    ANSWER = "publish answer"
    DELIVER = "consume deliver"
    PROCESS = "consume process"
    ACKNOWLEDGE = "consume acknowledge"
    ACQUIRE = "takeover acquire"
    RECOVER = "takeover recover"
    LOAD_SNAPSHOT = "takeover load snapshot"
    REPLAY = "takeover replay"
    OPEN = "takeover open"


class Reading(NamedTuple):
    """One value of an observed metric."""

    value: int | float
    attributes: Mapping[str, str | int | float | bool] = {}


#: Returns the one value of a metric, or a value for each set of attributes.
Read = Callable[[], int | float | Iterable[Reading]]


class Telemetry:
    """The instruments of one process. service: "topic_owner", …; instance: distinguishes its processes."""

    def __init__(self, service: str, instance: str, *, version: str = "", otlp_endpoint: str | None = None) -> None:
        resource = Resource.create({SERVICE_NAME: service, SERVICE_INSTANCE_ID: instance, SERVICE_VERSION: version})
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)
        self._meters = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter("oncelog")
        self._traces: TracerProvider | None = None
        self.tracer: Tracer = NoOpTracer()
        if otlp_endpoint:
            # Imported only when needed: it costs 100 ms.
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_endpoint)))
            self.tracer = self._traces.get_tracer("oncelog")

    @property
    def exports_spans(self) -> bool:
        """Whether spans go anywhere."""
        return not isinstance(self.tracer, NoOpTracer)

    @classmethod
    def from_environment(cls, service: str, instance: str) -> "Telemetry":
        """With this package's version, and OpenTelemetry's own variables: endpoint, resource attributes, sampler."""
        return cls(service, instance, version=version("oncelog"), otlp_endpoint=os.environ.get(OTLP_ENDPOINT))

    def observe_count(self, name: str, description: str, read: Read) -> None:
        """A number that only grows, exported as `oncelog_<name>_total`."""
        callback = partial(_observations, read)
        self._meter.create_observable_counter(f"oncelog_{name}", [callback], description=description)

    def observe_level(self, name: str, description: str, read: Read) -> None:
        """A number that goes up and down, exported as `oncelog_<name>`."""
        callback = partial(_observations, read)
        self._meter.create_observable_gauge(f"oncelog_{name}", [callback], description=description)

    def latency(self, name: str, description: str) -> Histogram:
        """A histogram of seconds, exported as `oncelog_<name>_seconds`: `.record(seconds, attributes)`."""
        return self._meter.create_histogram(
            f"oncelog_{name}", unit="s", description=description, explicit_bucket_boundaries_advisory=LATENCY_BUCKETS_S
        )

    @contextmanager
    def span(self, mark: SpanName, attributes: Attributes | None = None) -> Iterator[Span]:
        """A span named after a mark, around what happens inside; an error that passes is recorded on it."""
        with self.tracer.start_as_current_span(mark.value, attributes=attributes) as span:
            yield span

    def record_span(
        self, mark: SpanName, *, began_ns: int, ended_ns: int, attributes: Attributes | None = None
    ) -> None:
        """A span of the past, for marks that a core reports when they are over. Times: ns since 1970."""
        self.tracer.start_span(mark.value, start_time=began_ns, attributes=attributes).end(ended_ns)

    def metrics_text(self) -> bytes:
        """All metrics in Prometheus' text format (METRICS_CONTENT_TYPE)."""
        return generate_latest(self._registry)

    def shut_down(self) -> None:
        """Export pending data. Blocks for up to some seconds when traces are exported."""
        self._meters.shutdown()
        if self._traces is not None:
            self._traces.shutdown()


def _observations(read: Read, _options: CallbackOptions) -> Iterable[Observation]:
    values = read()
    if isinstance(values, int | float):
        return [Observation(values)]
    return [Observation(reading.value, reading.attributes) for reading in values]
