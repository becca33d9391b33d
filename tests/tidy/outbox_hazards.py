"""The hazards of an outbox and its relay: a part of `hazards`."""

from tests.tidy.hazard import Hazard

OUTBOX_HAZARDS = {
    "row-committed-behind-a-higher-number": Hazard(
        "Row 1 of an outbox is inserted, row 2 is inserted and committed, and a relay sends row 2. Row 1 is committed. "
        "The relay goes on behind row 2, and never sends row 1.",
        "A relay gives numbers of its own to rows that are committed.",
    ),
    "numbers-given-twice-after-a-restore": Hazard(
        "The database of an outbox is restored. The relay gives numbers to new rows that the log has already; their "
        "messages count as duplicates, and the rows are deleted.",
        "With each connection to the database, a stream is compared with the log before it gives numbers.",
    ),
    "log-read-before-the-producer-is-opened": Hazard(
        "A relay reads what the log has, and opens its producer. What the former relay had under way was stored "
        "between the two.",
        "The producer is opened first, which fences the former one.",
    ),
    "row-id-given-anew": Hazard(
        "A row is stored, and the database is restored before the relay deletes it by its id. Another row has the id "
        "since, and is deleted unsent.",
        "Rows are deleted by stream and number, under the claim.",
    ),
    "restored-row-sent-again": Hazard(
        "After a restore the counter of numbers is raised behind the log's. Rows that were sent in the lost time have "
        "no number in the database, and are sent again.",
        "What the log has is recognized by event id, whatever number the row has.",
    ),
    "restored-to-before-the-first-relay": Hazard(
        "An outbox gets its id from its first relay. The database is restored to before that: the next relay makes "
        "another id, which the log does not know, and sends all rows again.",
        "The outbox gets its id when its tables are created: without them there is no row.",
    ),
    "duplicate-of-another-row": Hazard(
        "Two databases of one outbox, as after a split brain, give the same number to different rows. One row is "
        "stored, the other one counts as a duplicate and is deleted.",
        "A number counts as stored only if the message under it has the event id of the row.",
    ),
    "stale-relay-finds-a-contradiction": Hazard(
        "A relay reads its numbers, and is stopped for longer than its lease. Another one sends rows. The first one "
        "wakes up, finds numbers in the log that it never gave, and ends with the error of a restored database.",
        "A contradiction ends a relay only if its claim can be renewed after the comparison.",
    ),
    "row-too-large-for-the-log": Hazard(
        "A row is larger than a message may be, or its topic has an invalid name. Its number can never be stored, and "
        "all rows behind it wait.",
        "Such a row gets a reason instead of a number.",
    ),
    "row-of-another-type": Hazard(
        "SQLite takes a number for a blob, and the number 1999 is sent as 1,999 zero bytes. Another value of a wrong "
        "type is an error for each statement that reads its row, and the rows of all topics wait.",
        "The type of each value is looked at. A row with a wrong one gets a reason instead of a number.",
    ),
    "row-passed-under-another-name": Hazard(
        "Rows name one topic in two ways, as orders and as public/default/orders, or as a partition. The first name "
        "waits, and is left out of a look; the topic takes rows again; the look ends with later rows of the other "
        "name, which get the first numbers.",
        "No row gets a number while a row that may belong to the same stream waits or is left out, under any name.",
    ),
}
