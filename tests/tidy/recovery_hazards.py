"""The hazards of a lost ZooKeeper: a part of `hazards`."""

from tests.tidy.hazard import Hazard

RECOVERY_HAZARDS = {
    "a-tail-that-was-given-up": Hazard(
        "One node has a batch that was never acknowledged. It was stored again in the next ledger. ZooKeeper is lost, "
        "and a recovery of the older ledger finds the one copy: the batch is in the log twice.",
        "A rebuild ends each ledger where the head of the next one says that the chain had arrived. Only the last "
        "ledger is recovered.",
    ),
    "copy-before-the-mark": Hazard(
        "A level is raised from which ledgers say where they belong. A copy of the records, which places those of "
        "before, is made, then the level is raised, then owners see it. A ledger that is begun in between says nothing "
        "and is in no copy. ZooKeeper is lost within the hour, and its acknowledged messages are in no list.",
        "What only a copy of the records can place is copied once more after the last of it was begun: when the level "
        "is raised, before that is answered, and again when every owner has seen it. A level whose program can ask "
        "owners copies after the last one has said that it begins nothing of before.",
    ),
    "former-ignored": Hazard(
        "A ledger has nothing but a head, or a batch that was never acknowledged, and has left the list. A rebuild "
        "that lists whatever storage nodes have puts it back.",
        "A rebuild follows the heads from the newest ledger back. A ledger between a ledger and its former one is left "
        "out.",
    ),
    "floor-ignored": Hazard(
        "A node was away while a ledger was trimmed and its copies were erased. A rebuild finds the node's copy, and "
        "deleted messages return.",
        "A ledger below the highest floor that a node, a head or a copy of the records knows is not listed.",
    ),
    "limbo-counts-as-asked": Hazard(
        "Of three nodes one is absent, and one is in limbo because its disk went back. A rebuild counts one missing "
        "node. A ledger that only these two had is in no list, and its indexes are given out again.",
        "A node in limbo counts as missing. From Qa missing nodes on, each topic that may have lost a ledger gets "
        "GivenUp in both chains.",
    ),
    "refilled-member": Hazard(
        "A member of a closed ledger was replaced, has erased its copy, and is filled again for another one. ZooKeeper "
        "is lost. A rebuild opens the ledger with its first members, and the recovery takes what the half filled copy "
        "lacks for the end of the ledger.",
        "A ledger of which a copy was erased, of which another node than its first members has a copy, or of which a "
        "member is retired and emptied, was closed: a rebuild closes it, at the last entry that any node has.",
    ),
    "half-a-copy": Hazard(
        "A copy of ZooKeeper's records was cut off, or a part of it is missing. A restore takes the records that it "
        "lacks for records that never existed.",
        "The manifest is the last part of a copy, with counts and a hash of all before it. Each part is sealed with "
        "its place and its file. A copy is used after its manifest was checked, and what it lacks means nothing.",
    ),
    "emptied-zookeeper": Hazard(
        "ZooKeeper has lost its data, and all services restart. A new cluster is created beside the storage nodes of "
        "the former one.",
        "A cluster is created only on request, or when all storage nodes have answered that their directories are "
        "empty. A running process compares ZooKeeper with what it has seen in it, and ends. No message advises to "
        "delete data.",
    ),
    "unreadable-record": Hazard(
        "One record in ZooKeeper is garbage. An operator writes it by hand, or from a backup: an older list of "
        "ledgers, an epoch that a living owner has, an id that was given, a right that was revoked.",
        "Only a record that cannot be read is written, by a compare-and-set, from all storage nodes but Qa-1. A topic "
        "gets an epoch 2^16 above all that was seen, a counter a number above all ids, the others their newest note.",
    ),
    "position-of-a-lost-part": Hazard(
        "A reader, a consumer, a query of Spark or a message in chunks names a position that a restore could "
        "not bring back. Its ledger is in no list. The reader begins at the first message, or waits for ever.",
        "A position in a ledger that no list has, and that is not below the floor, is an error that names the next "
        "position. So is one behind the end of a closed ledger. Only an owner that has proved to be the current one "
        "says so. The beginning of an empty ledger that left the list is no loss.",
    ),
    "tail-in-front-of-a-reader": Hazard(
        "A reader has read all of a ledger and waits at the next one, which is empty. ZooKeeper is lost. A restore "
        "leaves the empty ledger out, and the recovery of the one before it keeps a batch that one node has; a "
        "producer is told that it is stored. The reader goes on behind the empty ledger, without this batch.",
        "A reader begins each stream behind the last entry that it received, wherever the former stream waited. An "
        "owner never names the beginning of an empty ledger as the place where the log goes on.",
    ),
    "log-went-back": Hazard(
        "ZooKeeper and all storage nodes are restored from one older snapshot, and nothing in the cluster shows it. A "
        "producer that runs on sends its next message: the messages that it was told to be stored in between are lost, "
        "and are taken for stored when they are sent again.",
        "A producer that resumes compares what it was told to be stored with the mark of the grant. If that is lower, "
        "it fails with an error that names both.",
    ),
    "late-note": Hazard(
        "A note of version 1 arrives at a storage node behind the note of version 2. Or a record is deleted and made "
        "again, and its version begins at 0. The older value stays, and a restore brings it back.",
        "Of one path the note with the highest (era, created, deleted, version) stays, in memory, at a replay and in "
        "compaction. A deletion is a note, not an absence.",
    ),
    "holders-fade": Hazard(
        "A note is on nodes A and B. A's disk is replaced in May, B's in July. The note is gone, although never more "
        "than one node was missing.",
        "A node becomes a member when it holds notes of all records. May-replace counts a node as a holder only if its "
        "digest equals that of all others, and the elected metadata service sends each minute what a node lacks.",
    ),
    "damaged-record-is-noted": Hazard(
        "Somebody writes garbage into a record in ZooKeeper. It is noted as the record's newest state, and replaces "
        "the note of what the record was. A rebuild and a restore then give the garbage, or nothing.",
        "What its own codec cannot read is never noted, and is no difference between ZooKeeper and a storage node. "
        "A newer format is noted. A rebuild and a restore take the newest source that can be read.",
    ),
    "note-of-an-intent": Hazard(
        "The outcome of a write is unknown. Its note is sent all the same, but another value was written. A restore "
        "takes the value that never was.",
        "A note is sent from a synced read behind the write, never from what was to be written.",
    ),
    "revoked-right-returns": Hazard(
        "A right is revoked, or a topic deleted, and that is answered. ZooKeeper is restored from a backup of the day "
        "before: the right, or the topic, is back.",
        "A change is answered when it is noted. What could not be noted is an error that says so; the repeated call "
        "notes it, also if it changes nothing. What a change finds is noted, too, before it is told.",
    ),
    "restore-at-too-few-nodes": Hazard(
        "A restore serves after some storage nodes have stored its era. The owner of the lower era still gets its ack "
        "quorum from the others, and acknowledges what the restore does not know.",
        "A restore goes on only when more than half of the known storage nodes have stored its era, and all but Qa-1. "
        "One that dies meanwhile counts as missing.",
    ),
    "two-restores": Hazard(
        "Two operators restore the same cluster into two ensembles. Each gets some of the storage nodes, and both "
        "serve.",
        "Era and restore id are a ballot: of one era a node stores one id, and a restore needs more than half of the "
        "nodes. The other one takes a higher era and begins again. A node that answers cannot be named absent.",
    ),
    "unnoted-member": Hazard(
        "A storage node joined last, and of the nodes that a restore asks only one knows it. It is neither raised nor "
        "counted, and has acknowledged entries.",
        "The nodes that any note or head names are raised and counted, too. Notes are read again behind each node's "
        "record of the era.",
    ),
    "older-disk-is-missing": Hazard(
        "The disk of a storage node went back in time. The restore counts what it does not hold as not there.",
        "A directory in limbo counts as missing, although its copies are used.",
    ),
    "replaced-disk-is-missing": Hazard(
        "The disk of a storage node is replaced, and ZooKeeper is lost before repair has copied what it had. A restore "
        "reaches all nodes but one, within the bound. A ledger that only this node and the old disk had is left out, "
        "and nobody is told.",
        "A retired node counts as missing until a repairer has noted that it is emptied: no ledger names it, by "
        "records that were all read after its retirement. Until then an operator gives it up like any other node.",
    ),
    "prepared-ledger-is-left": Hazard(
        "An owner is killed between creating the record of its next ledger and linking it. The disks of the ledger's "
        "members go back in time. Nobody closes the ledger, so these nodes stay in limbo, and no restore can use them. "
        "Or the record is removed while the owner only pauses, and then the owner links the ledger.",
        "The record is removed once the record of the topic and that of its snapshots both have a higher epoch than "
        "the owner that created it, or lists that end in a higher ledger, and name the ledger nowhere. Then every link "
        "of that owner fails.",
    ),
    "lost-end-is-forgotten": Hazard(
        "All copies of the end of a closed ledger are lost, and that is proved. Then ZooKeeper is lost, too. No disk "
        "says that the end existed: a restore ends the ledger earlier, and its indexes are given again.",
        "A node that lacks the lost end of a ledger stays in limbo until an operator has given the lost entries up.",
    ),
    "loss-that-only-zookeeper-knows": Hazard(
        "The last entries of a closed ledger are proved lost, and an operator gives them up, so nodes leave limbo. "
        "ZooKeeper is lost before the next hourly copy of its records. A restore finds no trace of these entries: the "
        "ledger is opened again, ends earlier, and its indexes are given twice.",
        "The records are copied before the operator is answered, and within ten minutes after a proof.",
    ),
    "no-room-to-close": Hazard(
        "The policies of a namespace are exactly as large as a note may be. A restore beyond the bound closes its "
        "rights, which adds a field: the record has no note any more, and the next restore takes an older state of it, "
        "with a right that was revoked.",
        "A change of policies that leaves no room for closing the rights is refused; one that makes them smaller is "
        "not.",
    ),
    "clone-meets-production": Hazard(
        "A copy of ZooKeeper is restored for a test, with the cluster's id, where production's storage nodes can be "
        "reached. It raises their era, and production ends.",
        "A restore shows the topic owners of the cluster that answer and is refused, unless the operator says that it "
        "shall take over.",
    ),
    "trimmed-or-lost": Hazard(
        "ZooKeeper has lost its data. A ledger is missing in a chain: it was trimmed, or all of its copies are lost.",
        "A node writes down the floor of a chain before it erases a ledger by it, and compaction keeps the highest. "
        "The inventory tells it.",
    ),
    "era-at-one-node": Hazard(
        "A restore serves after one storage node has stored the new era. A former owner still gets its ack quorum from "
        "the others, and acknowledges what the restored records do not have.",
        "A restore raises all nodes but one less than the ack quorum. A node compares the era of each call and stream "
        "of a service with its own once, when it begins, and ends all streams when it takes a new era.",
    ),
    "inventory-before-the-era": Hazard(
        "A restore reads a storage node's inventory, then the former owner gets an acknowledgement there, then the "
        "node stores the era: the restored records lack that entry.",
        "The inventory is read behind the node's own durable record of the era. What is before that record in the "
        "journal stands. What waits for anything when the era comes is refused.",
    ),
    "the-lost-ensemble-returns": Hazard(
        "ZooKeeper was lost and its records were restored into another one. The lost one comes back with owners, "
        "repairers and records of before.",
        "Storage nodes refuse calls of former eras, and act on records of their own era only. A process that sees "
        "another era in ZooKeeper, or hears of one from most storage nodes, ends and names both. Until then it says "
        "that a topic was deleted or does not exist only after an ack quorum of storage nodes has proved its era.",
    ),
    "era-of-a-liar": Hazard(
        "A process that is no restore asks storage nodes for era 4,000, or states a high era in its calls. All owners "
        "are stale then, and no era is left.",
        "Only superusers raise an era, for the cluster of the directory, and by 1,000 at most. A node believes no "
        "caller's era: a higher one is refused, and the caller retries.",
    ),
    "refused-then-stored": Hazard(
        "A write fails, and one storage node alone has its message. The next ledger is still empty when the message is "
        "sent again and refused for good: the program is told that it will never be stored. ZooKeeper is lost, and the "
        "recovery that follows finds the message on that node.",
        "A refusal is of one sending. A producer says 'not stored' only of a message that no earlier session has sent. "
        "Another instance is told the mark behind its grant, which is an entry of the next ledger. So the head of that "
        "ledger is durable, and shuts out what the ledger before it had beyond the fold.",
    ),
    "lost-counter": Hazard(
        "The record of a counter of ids is lost. The next process that wants ids takes its absence for a cluster that "
        "has given none yet, and begins at 1: ids of producers that are leased, or in the log, are given again.",
        "A cluster is created with both counters. A counter that is missing gives no id: the one who starts a claim "
        "waits, and the error names the command.",
    ),
    "ids-again": Hazard(
        "The counter of ledger ids is lost, or taken from a backup. Ledger 7 is given anew, and storage nodes hold "
        "another ledger 7: copies differ, and a topic gets entries of another one.",
        "Ids of era e begin at e * 2^40. A counter below that, or none, gives no id, and a node takes no ordinary add "
        "to a ledger of a former era.",
    ),
    "versions-begin-again": Hazard(
        "The versions of restored records begin at 0. A compare-and-set of a former owner fits by its version, and "
        "replaces the restored list of ledgers.",
        "The records of each era have a root of their own, which no process of a former era knows.",
    ),
    "left-out-ledger-returns": Hazard(
        "One storage node alone has a ledger that was never acknowledged. A restore does not ask that node, and the "
        "ledger before it is recovered with a longer end. A second restore asks it: its head would end the ledger "
        "before it where the owner of that time knew, and acknowledged entries are lost.",
        "A restore keeps a copy of the records that it has written on storage nodes, and serves only then. A list of "
        "era e names all ledgers of the eras before, so one that it does not name stays left out.",
    ),
    "deletion-in-a-former-era": Hazard(
        "A restore did without one storage node. The ZooKeeper of the era before comes back, a zombie owner trims "
        "there, and that node erases its copies. It joins the new era, ZooKeeper is lost again, and the next restore "
        "takes its tombstones, its floor, or the floor in a head that it alone has for a trim of this era: a ledger "
        "that the list names is left out, although others have its acknowledged entries.",
        "A node that has learned late of its era shows no tombstone and no floor from before; those of a node that "
        "knows nothing of the newest committed era do not count. Neither does a head that the list of a later era left "
        "out.",
    ),
    "note-of-a-former-era": Hazard(
        "A restore did without one storage node. A process of the former era deletes a topic: it writes that in the "
        "former ZooKeeper, and that node alone notes it. The node joins the new era, ZooKeeper is lost again, and the "
        "next restore finds the note: a topic that has served all the time is gone, with its acknowledged messages. In "
        "the same way policies that were never effective return, or a storage node that serves counts as emptied.",
        "The copy of an era has each record that the era began with. A note of a former era about a record that this "
        "copy lacks says nothing; about one that it has, the higher state counts.",
    ),
    "snapshot-that-was-never-acknowledged": Hazard(
        "A restore lists a snapshot that one storage node alone has: it is as good as another, and its record is "
        "CLOSED. That node is lost before the repair has copied it, and the next restore misses a ledger that its copy "
        "of the records lists. Nothing acknowledged is lost, and it waits for its operator.",
        "A snapshot that no asked node has is left out; if the front of the log is gone and no other snapshot is left, "
        "the operator is asked for that. A ledger with snapshots ends at the last entry that may have been "
        "acknowledged.",
    ),
    "copy-of-an-attempt": Hazard(
        "A restore has given up storage nodes, has stored a copy of its records, and ends before its COMMIT. The nodes "
        "come back, and it is repeated. By the copy they are retired, rights are closed, and the ledgers that they "
        "alone have stay left out: acknowledged messages are lost although all nodes are there.",
        "A copy that a restore has made is used only if its era served: a storage node journals that when it joins, "
        "and its inventory names era and restore. Of several attempts of one restore the last one counts, so one that "
        "is resumed is committed only with a copy of its own. The records that it has left in ZooKeeper retire nobody.",
    ),
    "restore-beyond-the-bound": Hazard(
        "More storage nodes are missing than the ack quorum allows. An entry that only they had is gone, and it may be "
        "of any topic: its index or its generation is given a second time.",
        "Every topic then gives up what may have followed in both chains: its owner jumps over all numbers that may "
        "have been told, before it writes anything else.",
    ),
    "ids-hide-an-older-zookeeper": Hazard(
        "ZooKeeper was restored from an older backup below running services. One storage node still takes part, its "
        "topic's owner claims new ledger ids until they pass those that the other nodes have, and these join: the "
        "topic goes on without the ledgers that the older ZooKeeper does not list.",
        "A node joins only if ZooKeeper's record of the node is not older than the node has written it, and if "
        "ZooKeeper knows the newest ledger of which the node has entries: its record, its place in a list, or its "
        "deletion.",
    ),
    "older-zookeeper-is-served": Hazard(
        "ZooKeeper was restored from an older backup. Storage nodes refuse it, and a metadata service that starts over "
        "it has seen nothing newer: deleted topics are listed, and revoked rights are granted.",
        "Owners and metadata services ask the storage nodes that ZooKeeper names. One that has written a newer version "
        "of its own record proves that ZooKeeper is older, as does more than half of them in a later era. A start then "
        "waits, and a running process ends. No answer proves nothing.",
    ),
}
