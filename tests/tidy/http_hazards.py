"""The hazards of HTTP consume: a part of `hazards`."""

from tests.tidy.hazard import Hazard

HTTP_HAZARDS = {
    "foreign-delivery-id": Hazard(
        "A client of HTTP consume acknowledges an id that its session has not given out, or whose time is over. A "
        "message that nobody has processed never comes.",
        "A session acknowledges outstanding deliveries only; an id names index, seek epoch and generation.",
    ),
    "abandoned-http-session": Hazard(
        "A client of HTTP consume vanishes without a word. Messages that wait for it in the service have no ack "
        "time-out, and what its open connection is given comes back to it again and again.",
        "A session ends after its ack time-out without a request; an open stream is one only while nothing is owed.",
    ),
}
