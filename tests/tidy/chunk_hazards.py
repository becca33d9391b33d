"""The hazards of messages in chunks: a part of `hazards`."""

from tests.tidy.hazard import Hazard

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
