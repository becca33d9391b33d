"""The hazards of Kafka's clients. Kn: its number in the design of the door."""

from tests.tidy.hazard import Hazard

KAFKA_HAZARDS = {
    "number-before-the-first": Hazard(
        "K5. The first batch of a client has the number 2**31 - 7, or few records are stored. Arithmetic on half of "
        "the ring of numbers finds the batch behind the mark: a duplicate. It was never stored, and is acknowledged.",
        "A number below 0 is a gap.",
    ),
    "numbers-wrap-around": Hazard(
        "K6, K7. A client has sent 2**31 records. Its next number is 0, or -2**31, or one is left out; a batch lies on "
        "both sides of the wrap, and is sent again. It is refused for ever, or taken for another one.",
        "Numbers are read modulo 2**31, next to the highest one that is known, and ids have 48 bits for them.",
    ),
    "copy-of-an-older-epoch": Hazard(
        "K15. A client raises its epoch and sends a batch again under it. A late copy of the former batch arrives, "
        "below what is remembered: a duplicate of a record that was never stored under that epoch.",
        "An id of an older epoch is a duplicate only if it is in a batch that is remembered. Otherwise it is stale.",
    ),
    "record-batch-that-lies": Hazard(
        "K12. A record batch says that it has five records, and has four; or a size in it goes beyond the batch; or "
        "its records expand to gigabytes. Offsets shift, and each reader stops there for ever.",
        "The owner reads every record of a batch before it stores it, within the limit of its size.",
    ),
    "hidden-records-delivered": Hazard(
        "K11. The first records of a stored batch are known from before, and are hidden. A door serves the batch whole "
        "under a lower base offset. librdkafka and kafka-python deliver the hidden records again.",
        "The door serves a batch without them, the same bytes at every door.",
    ),
    "two-gateways-hold-one-client": Hazard(
        "K14. The connection of a client breaks, and the first gateway does not see it. The client goes on through "
        "another one. Both hold its producer and open it again in turn, or batches of the first one arrive late.",
        "All gateways open it as the same instance. The later opening ends the session before it for good, and what "
        "that has in flight is decided first.",
    ),
}
