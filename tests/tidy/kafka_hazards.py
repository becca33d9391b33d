"""The hazards of Kafka's clients. Kn: its number in the design of the door."""

from tests.tidy.hazard import Hazard

KAFKA_HAZARDS = {
    "commit-for-a-deleted-topic": Hazard(
        "K20. A consumer is at offset 5,000. The topic is deleted and made again, and has ten messages. The consumer "
        "commits 5,000: the group skips the next 4,990 messages of the new topic.",
        "An offset above the durable end is refused. A subscription belongs to the id of its topic.",
    ),
    "offset-without-its-owner": Hazard(
        "K22. A member asks for its offset while the owner of the partition is away, or from an owner that was paused "
        "and is replaced. It is told that there is none, or an old one: it begins at the end, or with everything.",
        "Only an owner that has proved itself says which offset there is, or that there is none. Otherwise the client "
        "gets an error after which it asks again.",
    ),
    "former-member-commits": Hazard(
        "K23. A member is replaced, and its last commit is under way. It arrives after the next member has asked for "
        "the offset, and moves it back, or on.",
        "An owner takes a commit of the newest generation of the subscription or a higher one. The generation is "
        "raised at each partition before the next member gets it.",
    ),
    "commit-below-a-trim": Hazard(
        "K25. A group commits a lower offset while a trim is in flight, or just before it. The messages are deleted, "
        "and the consumer is out of range after a step back that was allowed.",
        "A commit and a trim above it exclude each other, as a seek and a trim do.",
    ),
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
        "All gateways open it as the same instance. The later opening ends the session before it, which does not come "
        "back, and what that has in flight is decided first.",
    ),
    "late-answer": Hazard(
        "K1. A client has 64 batches in flight, and loses the answers of all. Kafka knows the last five: an older one "
        "that is sent again is refused as out of order, although it is stored.",
        "A door has no window. A batch that was taken stays until the log has decided, and a repetition joins it.",
    ),
    "compact-refused": Hazard(
        "K30. Kafka Connect creates its topics with cleanup.policy=compact, three replicas, and looks whether exactly "
        "this policy is shown. If it is refused, or shown as delete, no worker starts. If a retention deletes from "
        "such a topic, its configurations are lost.",
        "compact is stored and shown, any replication factor is taken, and a topic with compact alone keeps all.",
    ),
    "built-in-config-refused": Hazard(
        "A program creates its topics with configurations that it has built in: Kafka Streams with segment.bytes, Quix "
        "Streams with a retention beside cleanup.policy=compact. If one is refused, the program does not start, and "
        "its user cannot change it.",
        "What says how a broker keeps its files is taken and has no effect. A limit beside compact deletes nothing, as "
        "on Kafka.",
    ),
    "operations-not-told": Hazard(
        "A console asks with Metadata what it may do, and does not start without an answer.",
        "Metadata answers with the operations of the client's role, of topics and of the cluster.",
    ),
    "trimmed-too-far": Hazard(
        "DeleteRecords names an offset in the middle of a ledger, or the end while messages are being stored. Messages "
        "at or above the offset are deleted, too: lost.",
        "Only ledgers go that have no message at or above the offset. The end is that of the time of the request. An "
        "owner or a service of an earlier version has no such call, and takes none for a truncation.",
    ),
    "lost-first-batch": Hazard(
        "K2. The first batch of a client is refused, or its topic was not there yet. The second one comes, and nothing "
        "is known of its producer: Kafka takes it. The first one is then a duplicate, and is lost.",
        "A producer of which nothing is stored starts at number 0. Metadata of a new topic is answered when the topic "
        "can be used (K4).",
    ),
    "batch-before-the-close": Hazard(
        "A client with acks=0 sends its last batches and closes the connection, as Java's producer does. The door "
        "still looks for their topic, and drops them. The client has reported no error.",
        "A batch that wants no answer is stored although its client has left.",
    ),
    "renumbered-while-undecided": Hazard(
        "K3. The answer of a batch is lost. A batch of another partition gets a final refusal, so the client raises "
        "its epoch and renumbers what has no answer. The first batch is stored twice.",
        "A final refusal waits until all else of the producer id is decided, or was answered as not known. A gap is "
        "not final for 10 s.",
    ),
    "refused-batch-uses-a-number": Hazard(
        "K8. A batch is refused because it is too large. The client splits it, and sends the halves under its numbers. "
        "A batch behind it was taken meanwhile, so the halves are duplicates: lost.",
        "The number behind a refused batch is a gap until the refused one has come again.",
    ),
    "gap-for-ever": Hazard(
        "K9. A batch before this one will never come again. The client of aiokafka repeats at each answer that it may, "
        "so it hangs, and so does its `stop`.",
        "After 10 s the refusal of a gap is final.",
    ),
    "offsets-counted-from-none": Hazard(
        "K13. A batch of five records is a duplicate whose place is forgotten, and is answered with offset -1. The "
        "client counts from it: -1, 0, 1, 2, 3. The program keeps offsets that are those of others.",
        "The offset is -2**31, so that all of them stay below 0.",
    ),
    "read-on-in-another-topic": Hazard(
        "K21. A consumer is at offset 5,000. The topic is deleted and made again, and is longer by now. The consumer "
        "reads on in the middle of another topic, and never sees what comes before.",
        "A connection that finds another topic under the name is told once that its offset is out of range.",
    ),
    "two-sets-of-members": Hazard(
        "K24. The coordinator of a group is stopped, and another one takes its place. The first one goes on, and "
        "answers heartbeats. Two members hold the same partition.",
        "The generation is durable before a member knows it. A coordinator proves that it is the current one before it "
        "answers, if the last proof is older than 2 s. Partitions refuse commits of former generations.",
    ),
    "fetch-without-an-answer": Hazard(
        "K27. A fetch waits for bytes that do not come, or has the id of a session that the broker does not know. The "
        "consumer hangs.",
        "It is answered when its time is over. There are no sessions: an id of one is refused, and clients go on "
        "without.",
    ),
    "first-batch-too-large": Hazard(
        "K28. The next batch is larger than what a client wants in one answer. It is left out each time, and the "
        "client never moves.",
        "The first batch of an answer is sent whole, whatever its size.",
    ),
    "converted-in-two-ways": Hazard(
        "K29. Two doors make record batches of the same stored batch, which differ in size or order. A client that "
        "goes on at the other door in the middle of a batch misses a record, or gets it twice.",
        "What is sent of an entry is a function of the entry alone.",
    ),
    "token-ends-between-answers": Hazard(
        "K31. The token of a client ends while its batch is being stored. It is answered after its rights have ended, "
        "or its answer is lost.",
        "What was taken before is answered, then the connection is closed.",
    ),
    "transactions-wanted": Hazard(
        "K32. A client wants transactions, and is told that their coordinator is not available now. It tries again for "
        "a minute, or for ever.",
        "The answer is one that clients take as final.",
    ),
    "producer-id-of-another-cluster": Hazard(
        "K35. An address moves from another cluster to this one under a running producer. Its producer id is in use "
        "here, far ahead: its batches are duplicates, and are lost.",
        "A producer id tells of which cluster it is; others get a final refusal.",
    ),
    "console-groups-fill-the-disk": Hazard(
        "K34. Each `kafka-console-consumer` makes a group of its own, which is never used again. It holds the messages "
        "that it has not read, until the disk is full. Or a group is deleted that a client has just begun to use, or a "
        "subscription of the SDK that has the name of one.",
        "A group without members and commits for seven days loses its offsets. The coordinator looks at its clock at "
        "each step of the deletion, and owners keep an offset that no group has committed, or one has lately. An "
        "offset of a client that never joined has an age of its own, and stays if anything but a commit has moved it.",
    ),
    "coordinator-is-lost": Hazard(
        "K24. The coordinator of a group ends while its members wait for an answer, or stands still, wakes and answers "
        "heartbeats. The next one gives the same generation to other members: both sets consume and commit.",
        "A generation is durable before a member is answered, and is never tried twice. The next coordinator takes the "
        "members of the durable one as they show themselves, lets them commit until its own one begins, above it.",
    ),
}
