"""Traces of the application: the trace context of W3C (https://www.w3.org/TR/trace-context/) as properties of messages.

OpenTelemetry belongs to the application. The SDK imports it only where the application asks for its trace context;
otherwise it uses what the application has imported, and works without it.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from oncelog.client.values.arguments import check_type
from oncelog.client.values.messages import TRACEPARENT, Message
from oncelog.core.errors import InvalidArgument

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Tracer
_TRACE = "opentelemetry.trace"
_PROPAGATION = "opentelemetry.trace.propagation.tracecontext"


def application_tracer() -> "Tracer | None":
    """The tracer of the SDK's spans; None: the application has not imported OpenTelemetry."""
    if _TRACE not in sys.modules:
        return None
    tracer: Tracer = sys.modules[_TRACE].get_tracer("oncelog")
    return tracer


class CurrentTrace:
    """Adds the trace context of the current span to properties."""

    def __init__(self) -> None:
        """Raises InvalidArgument without OpenTelemetry."""
        try:
            self._propagator = import_module(_PROPAGATION).TraceContextTextMapPropagator()
        except ImportError as error:
            message = f"trace_context needs OpenTelemetry: pip install opentelemetry-api ({error})"
            raise InvalidArgument(message, field="trace_context") from error

    def added_to(self, properties: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The properties with the context; as they are if there is no current span, or they have a context."""
        context: dict[str, str] = {}
        self._propagator.inject(context)
        if not context:
            return properties
        if not properties:
            return context
        check_type("properties", properties, Mapping, "a mapping of text to text")
        return properties if TRACEPARENT in properties else {**properties, **context}


def handling_span(topic: str, subscription: str, message: Message) -> "AbstractContextManager[object] | None":
    """The span in which a handler handles a message, a child of the one that sent it; None: the application has not
    imported OpenTelemetry. Names and attributes are those of OpenTelemetry's conventions for messaging."""
    tracer = application_tracer()
    if tracer is None:
        return None
    trace, propagation = sys.modules[_TRACE], import_module(_PROPAGATION)
    parent = propagation.TraceContextTextMapPropagator().extract(message.properties) if message.traceparent else None
    return tracer.start_as_current_span(
        f"process {topic}",
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        attributes={
            "messaging.system": "oncelog",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.subscription.name": subscription,
            "messaging.message.id": str(message.message_id),
        },
    )
