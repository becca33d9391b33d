"""The hazards of gateways, whose clients come back through other gateways. Pn: its number in the design of the door."""

from tests.tidy.hazard import Hazard

GATEWAY_HAZARDS = {
    "gateway-opens-anew": Hazard(
        "P1. A gateway is killed, and its client comes back through another one. That opens the producer as a new "
        "instance, which fences a newer one, or the client's own: for ever, if two instances do so in turn.",
        "The client presents its token, and the same instance goes on in a new session.",
    ),
    "gateways-hold-one-producer": Hazard(
        "P13. A gateway is paused with batches in its buffers, and the client has gone on through another one. The "
        "old batches arrive late and overtake newer ones.",
        "The later session ends the former one before it is answered, and what that has in flight is decided first.",
    ),
    "half-open-session": Hazard(
        "P14. The machine of a client is gone, and its connection to the gateway stays open. The new instance is told "
        "that the name is busy, until TCP gives up.",
        "The owner asks the gateway whether its client is there. An opening that waits is refused last, and no answer "
        "in 8 s means that the client is gone.",
    ),
    "half-open-consumer": Hazard(
        "P38. The machine of a client is gone, and its connection to the gateway stays open. Its exclusive "
        "subscription is busy for the new instance, and the Go client ends its consumer for good.",
        "The owner asks the gateway whether its client is there. The new instance is refused last, and no answer in "
        "8 s means that the client is gone.",
    ),
    "name-lost-by-a-restart": Hazard(
        "Gateways restart one after the other, while a standby polls for the name of a client. The session breaks, and "
        "the standby gets the name before the client is back.",
        "The name of a session that broke is kept for its token for 2 s.",
    ),
    "gateway-at-an-older-owner": Hazard(
        "An upgrade goes on, and an owner of the former version has the topic. It does not know tokens: a client that "
        "comes back is a new instance, and fences the one that lives.",
        "An owner opens producers for clients of gateways when the level of the cluster says that all owners know "
        "them. A grant says that its owner does.",
    ),
    "zombie-takes-its-name-back": Hazard(
        "P15. A client that a newer instance has fenced wakes up and reconnects. It takes the name back, and the two "
        "fence each other for ever.",
        "A token of an older generation is refused as fenced.",
    ),
    "sessions-end-each-other": Hazard(
        "P33. Two gateways have sessions of one client: by a late request of a connection that the client has left, by "
        "a takeover after which both resume, or by a copy of the client. Each session ends the other, for ever.",
        "The client's epoch orders its openings, also those of a gateway that resumes. A session that a later one has "
        "ended is never opened again by its gateway.",
    ),
}
