"""The hazards of leases, of expiry and of caps on producers: a part of `hazards`."""

from tests.tidy.hazard import Hazard

PRODUCER_HAZARDS = {
    "mark-evicted-at-a-cap": Hazard(
        "A topic with many producers forgets one to make room, and what that one sends again is stored twice.",
        "At a cap a new producer is refused. Known ones go on, and only expiry and operators have producers forgotten.",
    ),
    "renewal-fences-itself": Hazard(
        "A producer renews the lease of its id and thereby fences itself.",
        "Who proves the current generation renews, which grants nothing. Another one takes the id over, with the next "
        "generation.",
    ),
    "minimum-lifetime-shortened": Hazard(
        "The clock of an owner jumps, an owner sleeps for a day, or a new owner counts with another clock: a producer "
        "expires before its time, and sends again what is stored.",
        "The log counts time, by periods that an owner has waited for. A period is at most an eighth of each lifetime.",
    ),
}
