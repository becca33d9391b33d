"""The hazards of HTTP consume, and of the console: a part of `hazards`."""

from tests.tidy.hazard import Hazard

HTTP_HAZARDS = {
    "foreign-delivery-id": Hazard(
        "A client of HTTP consume acknowledges an id that its session has not given out, or whose time is over. A "
        "message that no consumer has processed never comes.",
        "A session acknowledges outstanding deliveries only; an id names index, seek epoch and generation.",
    ),
    "abandoned-http-session": Hazard(
        "A client of HTTP consume vanishes without a word. Messages that wait for it in the service have no ack "
        "time-out, and what its open connection is given comes back to it again and again.",
        "A session ends after its ack time-out without a request; an open stream is one only while nothing is owed.",
    ),
    "forged-form": Hazard(
        "A page of another origin, or under another name for this machine, lets the browser of a viewer send a form of "
        "the console or a request to REST, or read its pages. A topic is deleted that nobody wanted to delete.",
        "A form is taken from the console's own origin, with a token of this viewer and this URL. Without "
        "authentication the console answers under a loopback name only, and every HTTP port under an address or a name "
        "that its operator has given, and no page of another origin.",
    ),
    "page-hides-the-silent": Hazard(
        "A process does not answer while an operator looks at the console. The page waits for it, or shows its absence "
        "as if nothing were wrong.",
        "A page waits 1.5 s at most, shows the last good answer with its age, and names who did not answer.",
    ),
    "login-outlives-its-right": Hazard(
        "A token expires, its key is replaced, or a right is revoked, while a page is open. The page goes on to show "
        "what its viewer may no longer see.",
        "Each request and each rendering checks the viewer's own token; a refused answer replaces what was shown.",
    ),
}
