"""The hazards of Pulsar's clients at a door: a part of `hazards`. Pn: its number in the design of the door."""

from tests.tidy.hazard import Hazard

DOOR_HAZARDS = {
    "entry-of-another-batch": Hazard(
        "P3. A source is sent again after a restart, in other batches than before. The new messages of a batch, whose "
        "first ones are stored, are dropped with them.",
        "Each message of an entry has its own id. The known ones in front are stored with it, and not delivered.",
    ),
    "batches-of-keys": Hazard(
        "P5. Java sends batches of one key each: {0, 2, 4}, then {1, 3, 5}. Messages 1 and 3 look older than what is "
        "stored, and are lost.",
        "Such a batch is known by its highest id, and is stored as a whole or not at all.",
    ),
    "overlapping-batches-of-keys": Hazard(
        "P6. C++ and Go send batches of one key each, known by their lowest id: {0, 3, 4}, then {1, 2}. The second one "
        "looks like a duplicate, and is lost.",
        "Its ids are between stored ones, and were never stored: it is refused, and its messages fail.",
    ),
    "batch-that-counts-wrongly": Hazard(
        "P29. An entry says that it holds five messages, and has four; or sizes in it are wrong; or its payload "
        "expands to gigabytes. The numbers of messages shift, and each reader stops there for ever.",
        "The owner reads every message of an entry before it stores it, within the limit of its size.",
    ),
    "entry-of-another-producer": Hazard(
        "P29. The metadata of an entry names another producer than the one that sends it. Consumers believe it.",
        "The owner compares the name with that of the session.",
    ),
    "format-of-a-later-version": Hazard(
        "P32. An older program meets an entry of a format that it does not know. It reports damage, and a consumer "
        "that skips damage acknowledges the message.",
        "The format is written when every process knows it. Programs refuse an unknown one by an error of its own.",
    ),
    "other-order-of-properties": Hazard(
        "P36. A message is sent again with its properties in another order, as Go and Java do. Its bytes differ, and "
        "it is refused for ever as another message.",
        "Of an entry that comes again with other bytes, the content is unknown and not other. The door reads it "
        "back, and compares the key and the value of each message.",
    ),
    "generator-goes-back": Hazard(
        "P2. A new producer of the C++ library is cut off before its first receipt. Its generator goes back among the "
        "ids that are pending, and gives them to other messages. A broker that compares ids acknowledges these, and "
        "stores none of them.",
        "Ids that come again in other batches are read back. Another key or value under an id is refused.",
    ),
    "refusal-names-the-lowest-id": Hazard(
        "P7. A batch fails, and the error names its lowest id. The Java client knows the batch by its highest id, "
        "ignores the error, and waits until the message times out.",
        "An error to a client of Java names the highest id of the batch.",
    ),
    "refusal-resent-for-ever": Hazard(
        "P8. A message fails with a code for a wrong checksum. The Java client finds its own copy correct, and sends "
        "it again for ever.",
        "A client of Java is answered with 22, which fails the batch.",
    ),
    "send-error-closes-a-connection": Hazard(
        "P9. A message fails with any code but that of a wrong checksum. The C++ client closes the connection, and "
        "all of its producers send again, for ever.",
        "No SEND_ERROR is sent to it. Its producer is closed, and the next PRODUCER is answered with 8.",
    ),
    "send-error-kills-the-client": Hazard(
        "P10. The code for a wrong checksum is for a message that is not the first one in the queue of the C++ "
        "client, or that has timed out. The process ends by a null pointer.",
        "No client is answered with that code.",
    ),
    "send-error-silences-a-producer": Hazard(
        "P11. A message fails with 22 or 15. The Go client forgets the producer: nothing fails, and nothing is sent "
        "any more.",
        "No SEND_ERROR is sent to it.",
    ),
    "receipt-out-of-order": Hazard(
        "P12. A duplicate is answered at once, before a write that came first. The client closes the connection, or "
        "waits for the first answer for ever.",
        "Receipts and errors have the order of the SENDs.",
    ),
    "half-open-holder": Hazard(
        "P14. The machine of a producer is gone and its connection stays open. The new instance is told that the name "
        "is busy, until TCP gives up.",
        "A name that is wanted makes its door ping the holder. After 5 s without a byte the connection is closed.",
    ),
    "fenced-producer-reconnects": Hazard(
        "P16. A producer that a newer instance has fenced is answered with busy, not ready or not authorized. It "
        "tries again for ever.",
        "It is answered with 25.",
    ),
    "wrong-bytes-of-ours": Hazard(
        "P20. The door builds an entry that no client wrote, with a wrong checksum, size or count. The client cannot "
        "read it, and acknowledges it: the message is lost, on every copy.",
        "One encoder builds all such entries. Tests read them by protobuf, and by the reader of clients' own entries.",
    ),
    "last-id-of-no-message": Hazard(
        "P21. The last id of a topic names an entry without messages, a chunk, or a message of a batch that is not "
        "delivered. A reader learns that there is a message, and waits for it for ever.",
        "The last id is that of the last message, as it is delivered.",
    ),
    "reader-start": Hazard(
        "P22. A reader starts at an id with -1 in it, inside of a batch, at a trimmed entry, or at the end, and wants "
        "the named message or the next one. It skips messages, or gets some again.",
        "It begins with the named entry, whole, and the client drops what it does not want. -1:-1 means the first one.",
    ),
    "mask-that-is-swallowed": Hazard(
        "P17. A part of a batch is delivered as the whole batch with a mask. Most clients never complete it: they tell "
        "the application that its acknowledgement has succeeded, and send none. The messages come again for ever.",
        "The part is a batch of its own. Masks go to clients that have sent an acknowledgement set themselves.",
    ),
    "ack-of-another-part": Hazard(
        "P18. A consumer of key_shared has some messages of an entry, and acknowledges the entry. The messages of it "
        "that another consumer works on are acknowledged, and lost.",
        "An id means what this consumer was sent under it on this connection. All other ids are ignored, but for those "
        "of entries with one message in a subscription that was never sought: the consumer is not sent that message "
        "again.",
    ),
    "ack-of-the-unreadable": Hazard(
        "P19. A client cannot decode or decrypt a message, and acknowledges it with the reason. It is lost.",
        "It is not acknowledged. It comes again after a minute, and is counted.",
    ),
    "two-parts-under-one-id": Hazard(
        "P37. A consumer has a part of an entry, and another part comes to it. Both have one id: the acknowledgement "
        "of the first is taken for the second, which is lost.",
        "A consumer has one delivery of an entry at a time. What it has given back it gets again as the same messages "
        "or fewer, because it may still acknowledge them; for others it must subscribe again.",
    ),
    "seek-behind-old-messages": Hazard(
        "P23. A seek succeeds while the consumer stays open. Its permits are lost, or messages of before come behind "
        "it; or the client comes back with the start of before, and the seek is forgotten.",
        "The consumer is closed before the seek succeeds, and the next SUBSCRIBE of it begins at the sought place.",
    ),
    "token-of-a-deleted-topic": Hazard(
        "P24. A topic is deleted and made again, or a name expires. A producer that comes back is refused for its old "
        "token, for ever.",
        "The door opens it without the token, as a new instance.",
    ),
    "lookup-that-fails": Hazard(
        "P26. A look-up is answered that the service is not ready. The Java client closes the connection, and with it "
        "all of its producers.",
        "The answer to a look-up is a constant.",
    ),
    "transactions-retried-for-ever": Hazard(
        "P27. A client wants transactions, and is answered that their coordinator is not found. It asks again for "
        "ever.",
        "The topic of coordinators has no partitions, and requests for transactions are answered with 22.",
    ),
    "limit-below-a-waiting-message": Hazard(
        "P30. A C++ client keeps the largest size of a message for its whole process. A door tells it a smaller size "
        "than it assumed, and a message that waits is failed without being sent.",
        "No client gets a limit below 5 MiB, without what the log adds.",
    ),
    "entry-above-the-permits": Hazard(
        "P31. An entry has more messages than the client has permits, because its queue is small. It is never sent.",
        "An entry is sent whole while any permit is left.",
    ),
    "place-of-another-batch": Hazard(
        "P34. A duplicate comes in another batch than the stored one, and its receipt names the stored entry. The "
        "client counts its messages from there, and a reader that starts at one of these ids skips messages.",
        "A receipt names a place only if the entry holds the same batch, without a prefix.",
    ),
    "unread-for-one-topic": Hazard(
        "P35. A topic takes nothing, and the door stops reading the connection. Acknowledgements, PINGs and all other "
        "producers of the connection wait, and the client closes it each minute.",
        "A connection is not read for 5 s at most. Then the producers of topics that take nothing are closed.",
    ),
    "name-lost-behind-unread-sends": Hazard(
        "P35. A name is wanted while the door does not read its holder. The answer to the PING lies behind SENDs, and "
        "a producer that lives loses its name.",
        "A client that is not read counts as alive.",
    ),
    "chunks-without-their-first": Hazard(
        "P28. A client has receipts for the first chunks of a message, and its door or the owner of the topic dies. It "
        "sends the other chunks again. The message never completes, or its last chunk is acknowledged for all of it.",
        "The receipts of chunks are withheld until the message is stored, so a client sends all of them again. A chunk "
        "without those before it is refused.",
    ),
    "chunk-acknowledged-for-its-message": Hazard(
        "P28. A client has some chunks of a message when its connection breaks. After a minute it acknowledges them, "
        "to forget the message. By then the message has come again, and is not processed yet.",
        "Chunks that are not the last one have an id of no message. Acknowledgements of it change nothing.",
    ),
    "chunks-begin-again": Hazard(
        "P28. A client has some chunks of a message when its connection breaks. The message comes again from its first "
        "chunk on. C++ 4.2.0 takes that for a fault, drops all of it, and goes on with the next message.",
        "Each delivery of a message in chunks has a uuid of its own.",
    ),
    "error-name-in-a-sentence": Hazard(
        "P38. The Go client searches the text of an error for the names of errors. A sentence that names one, or a "
        "topic of that name, ends the producer or consumer.",
        "Names of errors are taken apart in each sentence.",
    ),
}
