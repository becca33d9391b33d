"""The paths of all records in ZooKeeper, below the root (`/oncelog`). No other module spells a path.

    /cluster                                 {cluster_id, format, level, era, state, …}: at the root in every era
    /restores/<kind>                         ephemeral: the progress of the restore, and of the drill
    /era-<e>                                 the root of all others in era e > 1
    /ids/ledger  /ids/producer               the two counters
    /owners/<incarnation>                    ephemeral
    /storage/<incarnation>                   ephemeral
    /storage_cookies/<incarnation>           lasting: every directory that ever joined
    /storage_ends/<incarnation>              the newest start of a storage node, and up to where its journal is synced
    /metadata/<n>                            ephemeral, sequential
    /policies/cluster                        policies of the cluster, once any is set
    /policies/namespaces/<tenant>            a tenant; it exists if this node exists
    /policies/namespaces/<tenant>/<ns>       a namespace; it exists if this node exists, which holds its policies
    /policies/topics/<topic_id>              policies of a topic; by id, so that a new topic of the same name has none
    /names/<tenant>/<ns>/<topic>             a name points to a topic id, or is a tombstone
    /topics/<topic_id>                       the topic record
    /topics/<topic_id>/cursors/<name>        cursor records; the folder is created and deleted with the topic record
    /pages/<topic_id>/<ledger id>            a page of the topic's list of ledgers, named by its first ledger
    /ledgers/<id>                            ledger metadata
    /idempotency                             the valid data set in Redis, once a key was used
    /repair                                  progress of the repairer, for reports; nothing depends on it
    /proofs/<topic_id>                       a proof of the topic that is asked for or goes on, with its progress
    /verdicts/<topic_id>                     the newest proof of the topic that has ended
    /deletions/<topic_id>                    the remaining work of a topic's deletion
    /tombstones/<topic_id>                   lasting: the topic was deleted, and its ledgers may be deleted

Names of tenants, namespaces and topics are valid path elements by their own rules (core.names). Other names, those of
cursors, are percent-encoded.
"""

from urllib.parse import quote, unquote

from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.names import NamespaceName, TopicName

CLUSTER = "/cluster"
RESTORES = "/restores"
IDS = "/ids"
OWNERS = "/owners"
STORAGE = "/storage"
STORAGE_COOKIES = "/storage_cookies"
STORAGE_ENDS = "/storage_ends"
METADATA = "/metadata"
POLICIES = "/policies"
CLUSTER_POLICIES = "/policies/cluster"
NAMESPACES = "/policies/namespaces"
TOPIC_POLICIES = "/policies/topics"
NAMES = "/names"
TOPICS = "/topics"
PAGES = "/pages"
LEDGERS = "/ledgers"
KEY_DATASET = "/idempotency"
REPAIR = "/repair"
PROOFS = "/proofs"
VERDICTS = "/verdicts"
DELETIONS = "/deletions"
TOMBSTONES = "/tombstones"

#: Folders of a new cluster, parents first.
FOLDERS = (
    IDS,
    OWNERS,
    STORAGE,
    STORAGE_COOKIES,
    STORAGE_ENDS,
    METADATA,
    POLICIES,
    NAMESPACES,
    TOPIC_POLICIES,
    NAMES,
    TOPICS,
    PAGES,
    LEDGERS,
    PROOFS,
    VERDICTS,
    DELETIONS,
    TOMBSTONES,
)


#: Records of which storage nodes keep notes: they change rarely, and nothing else could restore them.
NOTED = (CLUSTER, KEY_DATASET, CLUSTER_POLICIES)
#: {folder: how many elements below it their paths have}
NOTED_FOLDERS = {STORAGE_COOKIES: (1,), NAMESPACES: (1, 2), TOPIC_POLICIES: (1,), NAMES: (3,), TOMBSTONES: (1,)}


def is_noted(path: str) -> bool:
    """Whether storage nodes keep a note of this record."""
    if path in NOTED:
        return True
    folder = next((one for one in NOTED_FOLDERS if path.startswith(f"{one}/")), None)
    return folder is not None and path.count("/", len(folder)) in NOTED_FOLDERS[folder]


def era_root(number: int) -> str:
    """Of the records of this era, but for CLUSTER and RESTORES."""
    return "" if number == 1 else f"/era-{number}"


def of_no_era(path: str) -> bool:
    """Whether this path is below the root of the cluster in every era."""
    return path in {CLUSTER, RESTORES} or path.startswith(f"{RESTORES}/")


def storage_cookie(incarnation: Incarnation) -> str:
    return f"{STORAGE_COOKIES}/{incarnation}"


def storage_end(incarnation: Incarnation) -> str:
    return f"{STORAGE_ENDS}/{incarnation}"


def tenant_policies(tenant: str) -> str:
    return f"{NAMESPACES}/{tenant}"


def namespace_policies(name: NamespaceName) -> str:
    return f"{NAMESPACES}/{name.tenant}/{name.namespace}"


def topic_policies(topic_id: TopicId) -> str:
    return f"{TOPIC_POLICIES}/{topic_id}"


def tenant_names(tenant: str) -> str:
    return f"{NAMES}/{tenant}"


def namespace_names(name: NamespaceName) -> str:
    return f"{NAMES}/{name.tenant}/{name.namespace}"


def topic_name(name: TopicName) -> str:
    return f"{NAMES}/{name.tenant}/{name.namespace}/{name.local_full}"


def topic(topic_id: TopicId) -> str:
    return f"{TOPICS}/{topic_id}"


def cursors(topic_id: TopicId) -> str:
    return f"{TOPICS}/{topic_id}/cursors"


def cursor(topic_id: TopicId, name: str) -> str:
    return f"{cursors(topic_id)}/{quoted(name)}"


def pages(topic_id: TopicId) -> str:
    return f"{PAGES}/{topic_id}"


def page(topic_id: TopicId, name: LedgerId) -> str:
    return f"{pages(topic_id)}/{name}"


def ledger(ledger_id: LedgerId) -> str:
    return f"{LEDGERS}/{ledger_id}"


def proof(topic_id: TopicId) -> str:
    return f"{PROOFS}/{topic_id}"


def verdict(topic_id: TopicId) -> str:
    return f"{VERDICTS}/{topic_id}"


def deletion(topic_id: TopicId) -> str:
    return f"{DELETIONS}/{topic_id}"


def tombstone(topic_id: TopicId) -> str:
    return f"{TOMBSTONES}/{topic_id}"


def quoted(name: str) -> str:
    """One path element for any text. `.` and `..`, which ZooKeeper forbids, become %2E and %2E%2E."""
    element = quote(name, safe="")
    return element.replace(".", "%2E") if element in {".", ".."} else element


def unquoted(element: str) -> str:
    return unquote(element)
