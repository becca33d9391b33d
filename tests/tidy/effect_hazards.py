"""The hazards of stores of effects: a part of `hazards`."""

from tests.tidy.hazard import Hazard

EFFECT_HAZARDS = {
    "partial-effect-repeated": Hazard(
        "The second command of an effect in Redis fails. Redis does not undo the first one, also in a script or a "
        "transaction. The position does not move, the function runs again, and the first command takes effect twice.",
        "The position moves first, and the row says that the effect is partial. That stops every consumer until an "
        "operator decides. What can be refused before the first command is.",
    ),
    "data-without-its-line": Hazard(
        "A process appends the data of a batch to a file and is killed before it writes how far the file is; or the "
        "line is durable and the data is not. The batch takes effect twice, or not at all.",
        "The data is synced, then its line. At a claim the file is cut to the newest line whose bytes it has.",
    ),
    "indexes-as-floats": Hazard(
        "A store computes with indexes as floating-point numbers, as Lua in Redis does. Above 2**53 two positions are "
        "the same one.",
        "Indexes, numbers and generations are compared and kept as integers, or as text.",
    ),
    "skipped-message-rewound": Hazard(
        "A consumer starts, compares its store with the subscription, and asks for what the store lacks. Messages that "
        "an operator skipped, that were evicted or became dead letters are delivered again at each start.",
        "Only what consumers acknowledged can be lost by a store, and only that can be rewound.",
    ),
    "skipped-message-counted-as-consumed": Hazard(
        "A message is in work, an operator skips it, and then its acknowledgement arrives. It counts as consumed; the "
        "store does not have it, so later it seems lost and comes back.",
        "An acknowledgement counts as consumed only the messages that were not acknowledged before it.",
    ),
    "redo-restored-to-before": Hazard(
        "Effects are redone from index 0 up to 3, and acknowledged. The store is restored to before the redo: it says "
        "that it has everything up to its old position, and the effects of 0 to 2 are lost.",
        "The log keeps where a redo began, and what was consumed since. A store of an older redo begins there.",
    ),
    "redo-hides-what-is-before-it": Hazard(
        "Effects are redone from index 80 on. Then the store is restored to a backup of before the redo, which has "
        "everything up to 50. The next claim begins at 80: the effects of 50 to 79 are lost in silence.",
        "A redo forgets what was consumed from its place on, and nothing before it. It never moves a position forward.",
    ),
    "consumer-without-effects": Hazard(
        "A consumer that keeps no effects attaches to a subscription whose effects are in a store. It acknowledges "
        "messages, and their effects are missing.",
        "All consumers of a subscription name the same store of effects, or none does. The log knows the store.",
    ),
    "two-stores-take-turns": Hazard(
        "Two programs with two databases use one subscription in turn. Each database has a part of the effects.",
        "The first store that is bound stays; consumers with another one are refused.",
    ),
    "acknowledgement-under-way": Hazard(
        "A consumer has applied a message, and its acknowledgement is under way. The database fails over and forgets "
        "the effect. The consumer claims again: the log does not have the acknowledgement yet, so nothing seems lost. "
        "Then it arrives.",
        "A consumer's own acknowledgements are answered before it asks the log, and a consumer whose store went back "
        "attaches anew.",
    ),
    "rewound-in-place": Hazard(
        "Messages are rewound, and the consumer that asked for it goes on where its memory is. Its next cumulative "
        "acknowledgement covers what was lost.",
        "A rewind is a new seek epoch: what was received and acknowledged before is void, and so is the claim.",
    ),
    "store-read-first": Hazard(
        "A consumer reads its store, then asks the log. What another one has applied and acknowledged between seems "
        "lost, and is rewound without a need.",
        "The log is asked first, then the store is claimed; only the position of the claim is compared.",
    ),
    "claim-under-the-grant-of-another": Hazard(
        "A consumer asks the log while another one becomes active, and claims with the generation of the answer, which "
        "is that of the other one. The claim of the active consumer ends. What that one has consumed since the "
        "question seems lost, or the log seems to be an older one.",
        "A consumer claims only if the answer names its own grant. If it asks again after the claim, the answer must "
        "be of the same rank.",
    ),
    "log-known-by-a-deposed-owner": Hazard(
        "A consumer of a deposed owner is outranked in its store, and asks the log who has claimed it. That owner does "
        "not know of the claim: the log seems to be an older one, and the program stops. A mirror compares the end of "
        "its copies with a log that is longer by now.",
        "An owner says what the log knows only after a proof that began after the question.",
    ),
    "verified-before-a-late-ack": Hazard(
        "A consumer is idle, and its store forgets. No message comes that would find the claim gone: what was lost "
        "stays lost.",
        "An idle consumer claims and compares again at intervals.",
    ),
    "redo-under-an-old-claim": Hazard(
        "An operator seeks back and wants the effects redone, while a consumer waits for messages. It keeps its grant, "
        "and gets the messages again. Its claim is of before: it acknowledges some as applied, and applies the others; "
        "its next claim begins the redo, and applies these a second time.",
        "What was delivered at a later seek epoch than the claim knows needs another claim first.",
    ),
    "received-and-forgotten": Hazard(
        "A consumer claims again, with a higher rank because of a redo, and drops what it has received. Its grant is "
        "the same, so the owner does not deliver that again: nothing happens any more.",
        "Another claim drops only what is void; the owner delivers that again.",
    ),
    "store-changed-under-a-consumer": Hazard(
        "An operator binds a subscription to another store while a consumer of the old one is connected, or attaches. "
        "It acknowledges messages that only the old store has.",
        "A subscription gets another store only while it has no consumers, and none attaches until that is durable.",
    ),
    "gap-passed-over": Hazard(
        "A message is handed out to the application's side of a consumer, and the connection is lost. The consumer "
        "forgets the message; the owner counts it as held and sends the next one. The position passes it.",
        "The position passes a gap only if the log says that everything below the next message is acknowledged. "
        "Otherwise the consumer attaches anew, and gets everything that is not acknowledged.",
    ),
    "store-replaced-while-running": Hazard(
        "A program runs, and what is behind its engine becomes another store: a copy that is detached, or another "
        "database at the same address. The program still says that it has the first one.",
        "Each claim reads the store id in its transaction, and ends the program if it is not the one of its start.",
    ),
    "effects-table-dropped": Hazard(
        "The table of positions is dropped, the application's tables are not. The next consumer begins anew, and every "
        "effect happens twice.",
        "A bound subscription without its row in the store is an error that says what to do.",
    ),
    "recreated-subscription-outranked": Hazard(
        "A subscription is deleted and created again. Its generations begin at 1, and the store has 40: no consumer of "
        "the new subscription can ever claim it.",
        "The rank of a claim begins with the subscription's number.",
    ),
    "position-without-claim": Hazard(
        "A consumer reads the position, and another one claims the store before it applies. Or a consumer of before a "
        "redo applies at the same position. The effect happens twice.",
        "Each apply names the nonce of its claim and the position that it expects, in the same statement.",
    ),
    "plain-read-of-a-position": Hazard(
        "The answer to a commit is lost. The position is read while the commit is under way, and seems to be the old "
        "one; the effect is tried again, and happens twice.",
        "Nothing is concluded from a plain read. A new claim locks the row, waits for what is under way, and voids it.",
    ),
    "stopped-process-holds-the-row": Hazard(
        "A process is stopped in the middle of its transaction. Nobody else can claim the source.",
        "The server ends a transaction in which nothing happens.",
    ),
    "half-an-effect": Hazard(
        "The application's function commits, by a method or as text: a part of its writes is committed without the "
        "position, or the position without the rest. Or a refused commit leaves an open transaction in the pool, which "
        "the next user commits.",
        "Whatever ends the transaction is refused before it reaches the database, also if the function catches that; "
        "then the connection is rolled back by its driver.",
    ),
    "error-without-a-text": Hazard(
        "A function raises an error whose text is long, has half of a surrogate pair, or cannot be asked for. The "
        "owner refuses the reason of the dead letter, or the error's own error ends the program, each time.",
        "Whatever shows an error of the function takes its text from one place, which cuts and replaces.",
    ),
    "cancelled-by-nobody": Hazard(
        "A function waits for a future that a library has cancelled, and raises its CancelledError. It ends the task "
        "of its partition as if the program had asked for that: without a word, and for every instance. asyncio also "
        "makes such an error of one that a thread raises, another object of a TimeoutError, and never delivers a "
        "StopIteration.",
        "The function's errors are wrapped where it is called. A cancellation counts as asked for only where the task "
        "that waits for the work was cancelled itself; every other one is an error, and what failed is tried again.",
    ),
    "committed-by-the-driver": Hazard(
        "A function commits by the connection of its driver, which nothing refuses. The position is durable; then the "
        "process is killed, or the function raises and the message comes again and is taken for applied.",
        "The last look asks whether the transaction is the one that wrote the position. What it finds is told, and "
        "so is a position that is there although the function failed.",
    ),
    "swallowed-error-committed": Hazard(
        "A function catches an error of the database. PostgreSQL answers the COMMIT with ROLLBACK, and the driver "
        "raises nothing: the message is acknowledged, its effect is lost.",
        "The position is read as the last statement before the commit.",
    ),
    "corrupt-message-rewound": Hazard(
        "A message cannot be read, and is skipped by an acknowledgement alone. It counts as consumed, and the store "
        "does not have it: so it seems lost, is delivered again and skipped again, at each start.",
        "The position passes the message in the store first, and then it is acknowledged.",
    ),
    "dead-letter-beside-the-store": Hazard(
        "A message is given up: the log makes a dead letter of it while a slow consumer applies it, or the store's "
        "note comes after the log's, or the note is taken for an effect. The message has an effect and is a dead "
        "letter, or it is neither.",
        "The store decides first: its position passes the message and owes a dead letter, in one transaction. The "
        "owner is asked until it has the letter, by every process that claims the store.",
    ),
    "given-up-beside-a-poison": Hazard(
        "A process takes a hundred messages, and the first one kills it, again and again. The log counts all of them "
        "as begun each time, so a hundred messages become dead letters, of which ninety-nine were never tried.",
        "After an interruption messages are taken one by one, and the first interrupted delivery does not count.",
    ),
    "store-does-not-roll-back": Hazard(
        "An engine with AUTOCOMMIT: the position is committed, the function fails, the effect is lost.",
        "A process writes a nonce, rolls back, and looks for it before it claims anything.",
    ),
    "output-without-deduplication": Hazard(
        "Deduplication is switched off for a topic. What effects, a relay or a mirror sends again after a crash is "
        "stored again.",
        "Sequence ids of producers with reserved names are always checked.",
    ),
    "outputs-of-another-code": Hazard(
        "A message has two outputs, and is processed again after a crash by a version of the function that gives "
        "three, or one that leaves it out. An output takes the id of another one, which counts as stored.",
        "The id of an output is the message's index times the highest number of outputs, plus its number. A message is "
        "acknowledged when all of its outputs are stored. An id that was never stored, below one that is, is an error.",
    ),
    "recreated-output": Hazard(
        "A topic that has outputs is deleted and created again. The new one gets the outputs of new messages only, as "
        "if it had the others.",
        "The store's id is made of the ids of the output topics.",
    ),
    "restored-target": Hazard(
        "The target of a mirror is restored to an older state. Its copies behind that are acknowledged at the source, "
        "and missing.",
        "The highest sequence id in the target is the position. What the source knows as consumed above it is rewound.",
    ),
    "restored-source": Hazard(
        "The source of a mirror is restored to an older state and goes on. Other messages get indexes that were "
        "copied, and count as copied.",
        "Before it copies, a mirror compares its newest copy with the source: the place and the checksum of the batch.",
    ),
    "producer-fails-over": Hazard(
        "A producer goes on in the copy of its topic, in another cluster. That one does not know its sequence ids, and "
        "stores again what it has copied; the effects of consumers happen again.",
        "A cutover opens each name there with the highest id that is copied: ids up to it count as stored. What is not "
        "copied has higher ids, and is sent again.",
    ),
    "position-ahead-of-the-copy": Hazard(
        "The position of a consumer is translated for the target of a mirror from a list of offsets that is kept "
        "beside the copies. The list is ahead of them: the consumer goes on behind messages that it has never seen.",
        "Positions are found from the origins of the messages that the target has stored.",
    ),
    "message-blamed-for-the-database": Hazard(
        "The disk of the database is full. The function raises what the database says, which counts as an attempt: "
        "with max_attempts, each message is given up, and what comes behind is out of order.",
        "Errors that say nothing of the statement are no attempts, by their code, also as the cause of another error.",
    ),
    "silent-database": Hazard(
        "The host of a database vanishes without a word in the middle of a transaction. The program waits as long as "
        "TCP does, is alive and has the partition, so no standby takes over.",
        "A transaction has a limit, after which its connection is shut, and the store counts as unavailable.",
    ),
}
