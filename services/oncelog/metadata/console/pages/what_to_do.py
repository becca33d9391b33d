"""What to do about each thing that the overview warns of. Pages link to an entry by its name; nothing is asked."""

from typing import Any, NamedTuple

from oncelog.metadata.console.page import Page, View

PATH = "/console/help"


class Advice(NamedTuple):
    """title: what is wrong. means: what that is. steps: what helps, in order. commands: which of these do it. read: a
    place in the documents."""

    title: str
    means: str
    steps: tuple[str, ...]
    commands: tuple[str, ...]
    read: str


#: {name of the entry: advice}
ADVICE: dict[str, Advice] = {
    "no-consumer": Advice(
        "A backlog without a consumer",
        "A subscription has messages, and no consumer is connected. Its messages are kept, and retention does not "
        "delete them.",
        (
            "Start the program that consumes the subscription, or find out why it has ended.",
            "If the program is gone for ever, delete the subscription: its messages are kept only for it.",
            "If the messages are of no use any more, clear the backlog.",
        ),
        (
            "oncelog admin subscriptions list TOPIC",
            "oncelog admin subscriptions delete TOPIC SUBSCRIPTION",
        ),
        "docs/operating.md#subscriptions",
    ),
    "dead-letters": Advice(
        "Dead letters",
        "A consumer has refused these messages as often as it may, so they are stored in a topic of their own. The "
        "subscription goes on without them.",
        (
            "Look at a letter: its properties say which message it was, and its page of messages shows the value.",
            "Mend the program that refuses it.",
            "Redrive the letters at the page of their subscription: each is published once to its origin.",
        ),
        ("oncelog admin subscriptions redrive TOPIC SUBSCRIPTION",),
        "docs/operating.md#subscriptions",
    ),
    "lost": Advice(
        "A ledger with lost entries",
        "Every storage node was asked, and none has a sound copy of some entries. Readers get an error that names "
        "them; all other messages can be read.",
        (
            "If a disk with a copy is found, start a storage node with it: the entries come back.",
            "Otherwise publish the messages again from their source.",
            "If the topic waits for these entries, give them up. This cannot be undone.",
        ),
        ("oncelog admin ledger end LEDGER",),
        "docs/incidents.md#giving-up-a-ledger",
    ),
    "unavailable": Advice(
        "A ledger that is unavailable",
        "The storage nodes with the only sound copies of some entries are away. Nothing is lost while their disks are "
        "there.",
        (
            "Start the storage nodes that are away, with their directories.",
            "The page Storage says which ones are away.",
        ),
        ("oncelog admin storage nodes",),
        "docs/incidents.md#storage-losing-a-node-a-disk-a-byte",
    ),
    "frozen": Advice(
        "A ledger with copies that differ",
        "Two copies of one entry have sound checksums and different contents. Nothing is repaired in this ledger.",
        (
            "Keep the directories and the logs of the storage nodes that the log names.",
            "Take it as a bug or as damage by another program, and report it.",
        ),
        (),
        "docs/incidents.md#what-the-alerts-mean",
    ),
    "waiting": Advice(
        "A topic that waits",
        "The topic is not served: its producers and consumers wait. The reason is in its row and on its page.",
        ("Read the reason on the page of the topic: it says what helps.",),
        ("oncelog admin topics stats TOPIC",),
        "docs/incidents.md#storage-losing-a-node-a-disk-a-byte",
    ),
    "held": Advice(
        "A topic that holds publishing back",
        "The backlog of a subscription is above the backlog quota of the topic, so producers wait or are refused.",
        (
            "Start more consumers of the subscription that is named, or mend them.",
            "If nobody needs it, delete the subscription, or clear its backlog.",
            "Or raise the backlog quota at the page of the topic.",
        ),
        ("oncelog admin subscriptions list TOPIC",),
        "docs/operating.md#retention",
    ),
    "blocked": Advice(
        "A blocked subscription",
        "It has acknowledged so many messages out of order that its ack state is above a limit. It gets no new "
        "messages until the oldest ones are acknowledged.",
        (
            "Look at the page of the subscription: it names the consumer that holds the lowest messages.",
            "Mend or restart that consumer.",
        ),
        ("oncelog admin subscriptions list TOPIC",),
        "docs/operating.md#subscriptions",
    ),
    "silent": Advice(
        "A process that does not answer",
        "The process has a session with ZooKeeper and answers no request. What it serves is unknown.",
        (
            "Look at its log, and at its machine.",
            "If it does not recover, end it: another process takes its work over.",
        ),
        (),
        "docs/operating.md#health",
    ),
}


async def collect(view: View) -> dict[str, Any]:
    return {"advice": ADVICE}


PAGE = Page(PATH, "What to do", "help.html", collect, interval_s=None)
