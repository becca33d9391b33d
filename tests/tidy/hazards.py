"""The hazards that Oncelog closes: for each a history that breaks a naive design, and the rule that prevents it.

Code and tests cite a hazard by its name. `@pytest.mark.hazard("id-between-stored-ids")` marks a test that fails without
its rule.
"""

from tests.tidy.door_hazards import DOOR_HAZARDS
from tests.tidy.effect_hazards import EFFECT_HAZARDS
from tests.tidy.gateway_hazards import GATEWAY_HAZARDS
from tests.tidy.hazard import Hazard
from tests.tidy.http_hazards import HTTP_HAZARDS
from tests.tidy.kafka_hazards import KAFKA_HAZARDS
from tests.tidy.outbox_hazards import OUTBOX_HAZARDS
from tests.tidy.producer_hazards import CHUNK_HAZARDS, PRODUCER_HAZARDS
from tests.tidy.recovery_hazards import RECOVERY_HAZARDS
from tests.tidy.version_hazards import VERSION_HAZARDS

HAZARDS = {
    "stale-record-after-conflict": Hazard(
        "A new owner reads the topic record. The old owner then opens another ledger and acknowledges messages in "
        "it. The new owner neither fences nor replays that ledger.",
        "Gaining a topic and every later change are compare-and-sets on one record. After any answer but success "
        "the record is read again before it is written.",
    ),
    "former-incarnation": Hazard(
        "A paused owner writes to a ledger that was closed, deleted and forgotten. A ZooKeeper server that lags "
        "behind does not show a ledger. A wiped node answers calls that were meant for its former incarnation.",
        "A call names the incarnation that it is for. The first add to an unknown ledger waits for a synced read "
        "of its record. What an unsynced read does not show proves nothing.",
    ),
    "recreated-topic": Hazard(
        "A topic is deleted and created again. The versions of its record begin again, and a write of the old "
        "owner succeeds.",
        "A name refers to a topic id, and all data lies under the id. A deletion removes name and record in one "
        "transaction that names the id.",
    ),
    "block-claimed-twice": Hazard(
        "Two processes claim the same block of ids. The process whose write was not applied reads the number and "
        "concludes that its claim succeeded.",
        "A claim counts if its reply was a success, or if a synced read shows its nonce. Otherwise its block stays "
        "unused.",
    ),
    "living-owner-suspected": Hazard(
        "A metadata service that restarts, or that a network fault isolates, takes every topic owner for dead. "
        "Topics move back and forth.",
        "An owner is suspected only after its stream was open and closed, and a connection to it was refused or "
        "had no route. Silence waits for the end of the session. Each topic has a back-off.",
    ),
    "deposed-owner-refuses": Hazard(
        "A deposed owner that never writes does not learn that it was deposed. It refuses, or misleads, clients "
        "with an old route.",
        "Answers carry the owner_epoch, and clients reject lower ones. An owner reads its record before it refuses "
        "a request or when a client shows a higher epoch, and proves that it is current before it answers a "
        "question.",
    ),
    "snapshot-before-fence": Hazard(
        "A new owner loads the dedup snapshot before it fences the log. Meanwhile the old owner writes a snapshot "
        "and trims the log, so the replay has a hole.",
        "The log is recovered first, then the snapshot is loaded, then the log is replayed. The record of the "
        "dedup cursor is claimed by compare-and-set.",
    ),
    "members-lost-in-turn": Hazard(
        "A storage node is wiped, then a second one fails together with the topic owner. Recovery needs two of the "
        "three former members.",
        "Retired incarnations are never chosen. A ledger with an absent member is replaced when a live node can "
        "take its place, and every used ledger is replaced after some time.",
    ),
    "other-content": Hazard(
        "A program starts again with the ids from 0 and other messages. All are answered as duplicates, successes "
        "with a position, and are lost.",
        "The owner remembers the checksum of each recent batch, and says whether the content of a repeated batch is "
        "the stored one. What it cannot compare is unknown, never equal. The producer raises an error.",
    ),
    "id-between-stored-ids": Hazard(
        "Ids 2, 3 and 5 are stored, then 4 arrives. A check by ranges calls it a duplicate, and the message is lost.",
        "A duplicate is an id that a stored batch contains. Any other old id is answered with StaleSequence, or as "
        "not verified.",
    ),
    "marks-of-a-failed-write": Hazard(
        "A write fails and one session ends. In another session the next id is accepted above a mark that was "
        "never stored.",
        "After a failed write all sessions of the topic end, and the whole state returns to what the log contains. "
        "Answers to older sessions have no effect.",
    ),
    "forgotten-producer": Hazard(
        "A fenced producer whose name was forgotten opens it again and gets the next generation. Or the batches "
        "that it resends are stored twice.",
        "A running producer presents its id and generation, and is never silently registered as new. If stored "
        "batches can no longer be recognised, the answer is ProducerExpired.",
    ),
    "incomplete-grant": Hazard(
        "A replayed grant lacks the sequence mode or the highest id. An owner rejects a generation from the future "
        "as old.",
        "A grant contains all of them. Opening with another mode is refused. A generation above the current one "
        "means that this owner is deposed.",
    ),
    "endless-resend": Hazard(
        "A refused batch is resent and refused again, without end.",
        "Each error is retriable, final for its batch, or final for its producer.",
    ),
    "dedup-toggled": Hazard(
        "Deduplication is disabled for a while. When it is enabled again, its marks are wrong.",
        "Disabled deduplication only skips the check of sequence ids. Grants, fences, the fold and snapshots "
        "continue. A replay folds entries and never checks them.",
    ),
    "unreadable-snapshot": Hazard(
        "The log is trimmed up to the newest snapshot, and that snapshot is unreadable.",
        "A snapshot is valid once its manifest is stored. The log is trimmed up to the oldest kept snapshot. A "
        "replay begins exactly behind the loaded snapshot, or fails.",
    ),
    "indexes-after-a-trim": Hazard(
        "The whole log is trimmed and the owner crashes. Messages are numbered from 0 again.",
        "The topic record holds each ledger's first base_index. Control entries count as no message, and a missing "
        "one is a hole.",
    ),
    "damage-like-a-torn-write": Hazard(
        "Damage in the last acknowledged group of the journal looks like an incomplete write and is cut off.",
        "When the journal is idle, and when it stops, a synced marker covers everything before it.",
    ),
    "repeated-add-not-synced": Hazard(
        "A repeated add is answered although the first copy is only in the page cache.",
        "A repeated add waits for the sync of the first copy. What a start reads back is synced before it is served.",
    ),
    "reused-file": Hazard(
        "A reused file contains old records with valid checksums.",
        "Checksums are seeded with format version, cluster, incarnation and segment id.",
    ),
    "key-without-message": Hazard(
        "An idempotency key refers to an id that its process never published. It blocks later requests, or is "
        "taken for stored.",
        "An uncertain claim ends its keyed producer. A claim is settled by fencing that producer, and assigned "
        "again only if its message will never be stored. Lost keys are detected, and keyed requests are refused "
        "for one window.",
    ),
    "resent-to-another-partition": Hazard(
        "A producer of a partitioned topic sends its messages again, and a message lands in another partition, where "
        "its sequence id is new.",
        "The partition is a function of the key, or of the sequence id, and of the number of partitions that the topic "
        "had when the producer name was first opened, which its grant records. The last id is returned for each "
        "partition, and the safe place to resume is the lowest of them.",
    ),
    "failed-ack-write": Hazard(
        "A write of acknowledgements fails. Its messages stay hidden, or a trim has counted them.",
        "Two layers: only what is durable moves mark_delete, trim, pause and statistics, and an acknowledgement in "
        "flight hides its message. A failed write drops the layer in flight: the messages are delivered again, and "
        "the client repeats the acknowledgement.",
    ),
    "ack-before-delivery": Hazard(
        "An owner delivers messages 0 and 1 and dies. The next owner refuses the acknowledgement of 1, or takes it "
        "for a sign that 0 was delivered, and 0 never comes.",
        "Deliveries are not recorded. An acknowledgement is refused only at or above the end of the log. The next "
        "message to deliver is the lowest one that is neither acknowledged nor outstanding.",
    ),
    "delivered-while-held": Hazard(
        "A new owner delivers again what a consumer still works on. Or a consumer subscribes twice and drops what "
        "the first stream brought, and it stays outstanding.",
        "A reconnection presents subscription id, seek epoch, generation, and the messages that the consumer holds "
        "and has begun. These stay with it, the rest of its messages are delivered again.",
    ),
    "flushed-before-applied": Hazard(
        "A flush returns while an acknowledgement or a report is on its way, and its caller finds the owner as it was.",
        "It ends when every acknowledgement before it is answered, and a question behind the reports.",
    ),
    "late-ack-after-seek": Hazard(
        "The subscription is sought to message 0. A late acknowledgement of the former place undoes the seek. Or "
        "an epoch is reported whose write fails, and the next owner gives it to another place.",
        "Acknowledgements carry the seek epoch of their message, and the fold ignores others. Nothing is reported "
        "or delivered of an epoch before it is durable.",
    ),
    "seek-below-a-trim": Hazard(
        "Everything up to 500 is acknowledged, and a trim up to 400 is being written. A seek to 100, or a new "
        "subscription from 0 on, becomes durable, and its messages are gone.",
        "While a trim is in flight, places below its target wait. While a step back is in flight, no trim begins above "
        "it.",
    ),
    "recreated-subscription": Hazard(
        "A subscription is deleted. A consumer that reconnects creates it again, or acknowledges messages of a new "
        "one of the same name. Or a takeover revives it.",
        "A reconnection names the subscription's id and never creates. The error SubscriptionGone is final. "
        "Snapshots carry tombstones.",
    ),
    "deposed-owner-delivers": Hazard(
        "A deposed owner delivers messages from its cache. Its consumer never acknowledges, so it does not learn "
        "of the takeover.",
        "Frames carry owner epoch and generation, and clients refuse lower ones. An owner delivers nothing after "
        "its own clock has ended its session. Two consumers may work on one message for a moment: stores fence.",
    ),
    "activation-not-durable": Hazard(
        "A consumer is told a generation whose write fails, and another consumer gets the same one. Or two "
        "processes of one name depose each other.",
        "A generation is reported when it is durable. The name of a connected consumer is refused with "
        "ConsumerBusy. A consumer that reconnects resumes as it is; after a takeover, others wait for it for a second.",
    ),
    "former-consumer-acks": Hazard(
        "A former active consumer wakes and acknowledges everything below 100, also message 60, which the present "
        "one has asked for again.",
        "A cumulative acknowledgement carries the generation of its message; lower ones are refused. The client "
        "ends one before its own negative acknowledgements. Single ones count from any consumer of the "
        "seek epoch.",
    ),
    "key-moves-too-early": Hazard(
        "A key moves to another consumer while the former one still holds an earlier message of it. Or a message "
        "is delivered again after a later one of its key.",
        "A key goes to the consumer of its hash range, unless another one holds an earlier message of it. A "
        "negative acknowledgement or a timeout recalls the later messages of the key.",
    ),
    "relative-credit": Hazard(
        "Credit is a counter. Half an entry is counted whole, or a consumer that went away leaves a negative rest.",
        "A consumer states absolute numbers of its stream: how many messages have left its buffer, and its window. "
        "At most their sum is sent. A lost or repeated report harms nothing.",
    ),
    "wrong-delivery-count": Hazard(
        "A message ends its consumers before they can refuse it, and its delivery count stays 0. Or all messages of a "
        "lost consumer's buffer are counted, and five crashes turn 10,000 of them into dead letters.",
        "The loss of a consumer adds one delivery only to what it reported as begun, else to its oldest message. "
        "Counts and delays of redeliveries are in the ack log. A seek clears them.",
    ),
    "dead-letter-number-lost": Hazard(
        "The number of a dead letter is in memory. After a crash another message gets it, and is taken for a "
        "duplicate.",
        "The number is durable before the dead letter is published, and dense for subscription and dead-letter topic. "
        "The message is acknowledged when the dead-letter topic holds that number. A new owner "
        "resumes what is pending.",
    ),
    "pending-dead-letter-trimmed": Hazard(
        "A dead letter is pending, and a seek or a trim takes its message. Or the dead-letter topic is created again, "
        "and the next number is a gap for ever.",
        "Pending dead letters are published whatever happens to the subscription's position, and keep their ledgers. "
        "For another id of the dead-letter topic they are decided again.",
    ),
    "dispatch-paused-for-ever": Hazard(
        "Dispatch is paused because of the ack state, and never goes on: every hole is with a consumer that does not "
        "acknowledge, the limit was lowered, or nothing looks after a takeover.",
        "The durable state is judged at load, when the policy changes, and after each fold. While it is paused, "
        "messages in the holes are delivered, and acknowledgements that lower the state are taken.",
    ),
    "ack-state-at-its-limit": Hazard(
        "The ack state is at its hard limit. Acknowledgements in memory are counted by a trim, or never written.",
        "They are answered as not durable and only hide their messages. Their number is bounded, and they are written "
        "first when there is room.",
    ),
    "oversized-ack-entry": Hazard(
        "One entry of the ack log holds many changes: it is too large, or one of them names an unknown subscription.",
        "An entry takes effect as a whole, in order, and is split by size. A change without meaning is ignored and "
        "counted; it never ends the fold.",
    ),
    "full-disk-refuses-acks": Hazard(
        "A full disk or a full backlog refuses acknowledgements, too, and so nothing is ever given back.",
        "Storage keeps a reserve for control entries. A backlog quota counts messages alone, and refuses publishing "
        "before deduplication judges it; acknowledgements and grants go on.",
    ),
    "wrong-clock-expires": Hazard(
        "The clock of an owner is an hour ahead, and messages expire that are fresh. Or an idle topic never closes its "
        "ledger, and retention never deletes it.",
        "Ages count only while the owner's clock agrees to a minute with the time that ZooKeeper gave to the owner's "
        "last write. An eviction is durable before a trim counts it. An open ledger past its retention is rolled.",
    ),
    "deposed-owner-acks": Hazard(
        "A deposed owner adds acknowledgements to the ack log behind the end up to which the new owner replayed it.",
        "The topic record lists both chains: acquiring the topic freezes both lists, and the last ledger of each is "
        "fenced and closed before the snapshot is read. A failed ledger of the ack log ends no producer's session.",
    ),
    "copy-erased-before-joining": Hazard(
        "A repairer copies a ledger to a storage node. The node erases the copy, because the ledger's record does not "
        "name the node. Then the repairer makes the node a member.",
        "The record names the joining node before the first byte is copied, and the swap is a compare-and-set from "
        "that version. A node erases an unnamed copy only after its own compare-and-set on the record.",
    ),
    "replaced-member-erased-early": Hazard(
        "A member is replaced and erases its copy. Another member never had one of the entries, and the third one's "
        "disk is lost.",
        "A record is whole only when every member has read every entry from its disk. Before that no copy is erased, "
        "and joining nodes and damage clear it.",
    ),
    "copy-of-one-source": Hazard(
        "A repairer copies what one node has. That node lacks an entry that only the replaced member held.",
        "Every id up to the end is copied, each from any sound copy. An absent member stays listed while an entry may "
        "be on it alone.",
    ),
    "flapping-node": Hazard(
        "A node that is away for an hour, or that flaps, causes terabytes of copies.",
        "Retired, decommissioned and damaged members are repaired at once, absent ones after a delay. The ledger with "
        "the fewest copies is first. A member that returns ends its replacement.",
    ),
    "repair-of-an-open-ledger": Hazard(
        "Repair closes an open ledger under its owner, or a prepared ledger that no record lists yet.",
        "Repair touches only CLOSED ledgers that a topic or cursor lists. Owners are asked to roll, and topics without "
        "an owner are placed.",
    ),
    "late-repairer": Hazard(
        "A repairer wakes late and swaps a member that another one has replaced, or creates the record of a deleted "
        "ledger.",
        "A swap names version, old and new member, and never creates a record. After a conflict all begins again.",
    ),
    "differing-copies": Hazard(
        "Two sound copies of an entry differ, and repair overwrites one of them. Or repair copies entries that were "
        "never acknowledged.",
        "Only entries up to the end of a CLOSED ledger are copied. Copies that differ freeze the ledger: nothing of it "
        "is swapped or erased.",
    ),
    "answer-of-a-former-member": Hazard(
        "Repair replaces two members of a ledger, and these erase their copies. A reader or a recovery with an older "
        "copy of the ledger's record asks them, and takes their answers for proof that the entry is missing.",
        "An erased copy is answered with ERASED, which is neither a copy nor a negative. Readers read the record "
        "again, after a sync, before they believe a refusal.",
    ),
    "damaged-fence": Hazard(
        "A fence is in a damaged part of a storage node's directory. The node starts, accepts ordinary adds of the "
        "fenced owner again, and calls entries missing that it has lost.",
        "A start that finds damage writes one LIMBO record first: ledgers that existed then take no ordinary adds, and "
        "what is not found is unknown, until each is complete again. A torn write is no damage.",
    ),
    "compaction-skips-damage": Hazard(
        "Compaction skips a record that it cannot read and removes the file. A lost entry then counts as one that was "
        "never stored.",
        "A segment in which anything cannot be read stays until all that it may have held is whole again.",
    ),
    "compaction-order": Hazard(
        "Compaction copies an entry behind the tombstone of its ledger, or a tombstone behind entries that came back.",
        "A record keeps its number for life. A tombstone erases only lower numbers, whatever the order of the files.",
    ),
    "removed-segment": Hazard(
        "A storage node ends while it removes a segment. The next start takes the missing file for damage, or a reader "
        "loses the file that it reads.",
        "Copies are synced before the record of the removal, and that before the file is unlinked. A start finishes "
        "the removal. A file stays until its last reader is done.",
    ),
    "missing-record-is-no-deletion": Hazard(
        "A ledger's record is lost, or ZooKeeper is restored from an older backup. Storage nodes take the missing "
        "record for a deletion. Or an owner waits for an entry of a trimmed ledger whose record was put back, or takes "
        "a missing record for a trim.",
        "A ledger is deleted only if a tombstone of its topic, or a list of the topic's ledgers that begins above "
        "it, proves the deletion. Otherwise it is kept and reported. An owner waits for no entry below the floor of "
        "its log, and for each one of a ledger that the log lists.",
    ),
    "index-given-twice": Hazard(
        "A ledger is ended by command at message 100. Consumers have applied messages 100 to 119. The next 20 messages "
        "get the same numbers and count as applied. Or a lost grant's generation is granted again.",
        "The entry GivenUp follows the ledger. Message numbers and generations jump past all that clients may have "
        "received, and instances from before the loss are fenced.",
    ),
    "update-waits-for-copies": Hazard(
        "A replaced storage node waits for copies from a node that the update of the StatefulSet has not started "
        "yet, and the update waits for the replaced node.",
        "A storage node is ready once it has what it owes itself and live nodes can give now, never by a count of the "
        "whole cluster. Without repair it waits for a limited time. Updates replace one pod at a time. Unready pods "
        "are evicted only within the budget.",
    ),
    "unmounted-volume": Hazard(
        "A volume is not mounted for a minute. The empty mount point is formatted as a new node, which replaces the "
        "old one and acknowledges messages. The mount then hides them.",
        "A node records whether its directory is on a file system of its own. An empty directory on the disk of the "
        "machine, at the address of such a node, is refused. Any other empty directory at the address of a node is no "
        "member before that node was unregistered for a while.",
    ),
    "too-few-nodes": Hazard(
        "One of three storage nodes is decommissioned, and no ledger can be opened. Or a ledger with one member counts "
        "as under-replicated for ever.",
        "A decommission is refused below the write quorum. Under-replicated counts against the write quorum of the "
        "ledger's record.",
    ),
    "removed-cookie": Hazard(
        "The cookie of a drained storage node is removed. Its directory joins the cluster again, with ledgers that "
        "were deleted meanwhile.",
        "The cookie of a decommissioned node stays and says so. Its directory is never used again.",
    ),
    "reserve-used-by-repair": Hazard(
        "A storage node's disk is full. Repair has used the reserve, so nothing can be fenced, closed or compacted.",
        "Repair copies stop above the reserve. The space of one segment is kept for tombstones and compaction.",
    ),
    "lost-too-early": Hazard(
        "Two nodes restart, and their entries are declared lost. Or two disks are gone, and readers wait for ever.",
        "Entries are lost only if, under one version of the record, every holder answered that it lacks them or is "
        "retired and gone, and every registered node was asked, all of them twice, and the topic's owner has none of "
        "them in memory. A holder that returns takes them back. Until then a read fails with the entries and the nodes "
        "that are waited for.",
    ),
    "open-ledger-without-quorum": Hazard(
        "Two of three members of an open ledger are gone for ever. No recovery can close it, and producers wait.",
        "The topic reports the ledger as unavailable and refuses producers with that reason. An operator can name the "
        "members that are gone; the ledger then ends before the first entry that no other member holds.",
    ),
    "directory-went-back": Hazard(
        "A storage node's directory is restored from an older copy, or loses the end of its last segment. It says that "
        "it never had what it lacks, and a recovery ends the log there.",
        "Each start, and up to where the journal is synced, are noted in ZooKeeper. A start of an older directory, or "
        "with a lower end, puts all of its ledgers into limbo.",
    ),
    "copied-directory": Hazard(
        "A copy of a directory is started beside the original. Both serve under one identity.",
        "No copy starts while another process is registered for the directory at another address. Each start writes "
        "its id into ZooKeeper by compare-and-set. A process that finds another id there ends.",
    ),
    "verified-copy-is-missing": Hazard(
        "A storage node lacks entries of a ledger whose record is whole. They are found missing, and the record stays "
        "whole: another node counts as replaceable.",
        "What a member of a whole ledger does not hold is damage. Its own reviews compare its copies with the records, "
        "and readers and verification let it review a copy. Repair takes `whole` back and fills it.",
    ),
    "ledger-id-given-twice": Hazard(
        "ZooKeeper is restored from an older backup and gives the id of a ledger again. A topic serves the messages of "
        "another one.",
        "Nodes, readers, recovery, replay and repair compare the topic of each entry, and a node keeps what it has of "
        "another topic. A node that holds a ledger at or above the counter does not register, and none becomes a live "
        "member of a ledger whose id was requested before it registered.",
    ),
    "redrive-killed-before-acknowledgement": Hazard(
        "A redrive of dead letters is killed, or loses its consumer, between publishing letters and having them "
        "acknowledged. The next one publishes them again.",
        "The index of a letter is its sequence id, under a producer name that every redrive of these letters uses. A "
        "batch is acknowledged before the next one is published, so the origin's log remembers what is not.",
    ),
    "oversized-dead-letters": Hazard(
        "Dead letters are requested together, above the limit of the receiver. The request is repeated for ever, and "
        "everything behind it waits.",
        "A request carries single messages, and both sides have its limit from one constant. What cannot be stored is "
        "left out of its letter. The statistics of the subscription show why letters wait.",
    ),
    "oversized-ledger-list": Hazard(
        "The list of a topic's ledgers is one record. After 50,000 ledgers ZooKeeper takes no larger one: the topic "
        "stops.",
        "Closed ledgers move to pages. A page and its link are one transaction on the topic record. A page is deleted "
        "only below the floor. No process that does not read pages gets to see one. An empty ledger leaves its list, "
        "and a small one is rolled once a day.",
    ),
    "poisonous-dead-letter": Hazard(
        "The event time of one message raises an error in a handler. All dead letters behind it wait.",
        "What a message of a producer causes costs this message alone.",
    ),
    "timeout-in-the-window": Hazard(
        "A slow application holds one message. The messages that wait in its window time out, too, count as delivered, "
        "and become dead letters that no application has received. Of an exclusive subscription, the one message that "
        "timed out comes after later ones.",
        "The time runs from the report that the application has received the message, and a report means no later "
        "delivery. Where delivery is in order, everything from that message on comes again.",
    ),
    "busy-loop-during-ack": Hazard(
        "Messages are delivered again while their acknowledgement is in flight. A call that waits for messages returns "
        "at once without any, again and again, and the event loop stands still.",
        "What is withheld does not count as there, so the call waits.",
    ),
    "nack-counted-twice": Hazard(
        "A negative acknowledgement is durable, its answer is lost with the owner, and the consumer sends it again. "
        "One delivery counts twice. Or an application rejects what seems to be a former delivery, and the message "
        "stays with the consumer for ever.",
        "A negative acknowledgement, and a consumer that returns, name the delivery of each message. A delivery counts "
        "once. The newest delivery takes the place of one that waits for the application.",
    ),
    "foreign-producer-name": Hazard(
        "A role opens a producer under a name that the services will use, and stores ids. The letters of the services "
        "with the same ids count as stored.",
        "Such names are reserved for the services. A stored id is believed only with the origin of the letter.",
    ),
    "unread-windows": Hazard(
        "A client opens the windows of many consumers in one frame and reads nothing. The owner holds all of them, and "
        "its memory is used up.",
        "Delivery asks the stream for room before each entry. All streams of an owner share one budget, and no caller "
        "can use it up. What is read for a stream is kept for it, or not read; a stream that waits keeps no read open.",
    ),
    "fixed-limit-on-a-slow-machine": Hazard(
        "A machine is slow, and a time limit is fixed: each attempt is given up just before its answer and repeated. "
        "That makes the machine slower; a takeover of milliseconds takes half a minute.",
        "Limits follow what recent answers of the same peer took, within bounds. A healthy peer has the lower one.",
    ),
    "codec-taken-for-damage": Hazard(
        "A reader that skips damaged entries has no library for a compression, or is too old to know it. It takes each "
        "such batch for damaged, and passes over all of them.",
        "A missing library is an error of its own, which names what to install. Nothing is skipped or acknowledged.",
    ),
    **EFFECT_HAZARDS,
    **HTTP_HAZARDS,
    **OUTBOX_HAZARDS,
    **PRODUCER_HAZARDS,
    **DOOR_HAZARDS,
    **GATEWAY_HAZARDS,
    **KAFKA_HAZARDS,
    **CHUNK_HAZARDS,
    **RECOVERY_HAZARDS,
    **VERSION_HAZARDS,
}

#: Hazards of these subjects are known, and belong to features that do not exist yet.
UNBUILT = (
    "applying effects outside of the log",
    "copies of recreated topics",
    "mixed versions and mirrors",
    "reuse of segments",
    "restoring and rebuilding ZooKeeper",
)
