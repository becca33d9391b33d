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

CHUNK_HAZARDS = {
    "chunk-moves-the-mark": Hazard(
        "A producer sends the first chunks of a message, and its owner dies. The next owner takes the sequence id for "
        "stored, and answers the retry as a duplicate. The message is lost.",
        "The message that names the chunks alone takes an index and moves the mark.",
    ),
    "chunk-trimmed-before-its-message": Hazard(
        "A ledger rolls between the last chunk of a message and the message. Retention trims the ledger of the chunks, "
        "and the message is there without its value.",
        "A message may name only chunks of its own ledger; otherwise all are sent again.",
    ),
    "chunks-of-two-values": Hazard(
        "A session breaks between two chunks, and the next one sends another value under the same id. The message is "
        "made of chunks of both.",
        "An upload belongs to one session, and a message must name exactly its chunks, with their checksums.",
    ),
}
