"""The method of the Events service, and its handler, which is the same in all services."""

import json

from oncelog.core.errors import InvalidArgument
from oncelog.rpc.methods import unary_of
from oncelog.rpc.server import Server
from oncelog.runtime.observing.events import EVENTS_MAX, Event, EventFilter, EventRing
from oncelog.wire import events_pb2 as pb

LIST_EVENTS = unary_of("/oncelog.wire.v1.Events/ListEvents", pb.ListEventsRequest, pb.ListEventsAnswer)


def serve_events(server: Server, ring: EventRing) -> None:
    """Register the method. It raises InvalidArgument."""

    async def list_events(request: pb.ListEventsRequest) -> pb.ListEventsAnswer:
        if not 1 <= request.limit <= EVENTS_MAX:
            raise InvalidArgument(f"limit={request.limit}: give 1 to {EVENTS_MAX}", field="limit", limit=EVENTS_MAX)
        return answer_of(ring, request)

    server.unary(LIST_EVENTS, list_events)


def answer_of(ring: EventRing, request: pb.ListEventsRequest) -> pb.ListEventsAnswer:
    before = (request.before_ms, request.before_source, request.before_number) if request.before_ms else None
    wanted = EventFilter(frozenset(request.kinds), request.within, request.node, before)
    events = map(_to_wire, ring.newest(wanted, limit=request.limit))
    return pb.ListEventsAnswer(service=ring.service, name=ring.name, source=ring.source, events=events)


def _to_wire(event: Event) -> pb.Event:
    return pb.Event(
        number=event.number,
        at_ms=event.at_ms,
        last_ms=event.last_ms,
        count=event.count,
        kind=event.kind,
        level=event.level,
        message=event.message,
        topic=event.topic,
        node=event.node,
        fields_json=json.dumps(event.fields, default=str),
    )
