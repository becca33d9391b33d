"""Names as Pulsar's clients write them, and what a name alone decides.

A topic is `persistent://tenant/namespace/name`, or short as in `oncelog.core.names`; `name-partition-N` is a partition
here, too. Topics that exist only in memory, and names of Pulsar's replication, are not offered.
"""

from oncelog.core.errors import InvalidName
from oncelog.core.names import (
    DOORS_PREFIX,
    NamespaceName,
    TopicName,
    check_producer_name,
    is_of_doors,
    parse_namespace,
    parse_topic,
)
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError, refusal_of

_PERSISTENT, _NON_PERSISTENT = "persistent", "non-persistent"
#: Clients that want transactions look up the partitions of this topic first.
_COORDINATORS = TopicName("pulsar", "system", "transaction_coordinator_assign")
_REPLICATION = "pulsar.repl"
_SHOWN_CHARACTERS = 20


def topic_of(text: str) -> TopicName | Refusal:
    """The topic that a client names."""
    scheme, separator, _ = text.partition("://")
    if separator and scheme == _NON_PERSISTENT:
        return Refusal(
            ServerError.NOT_ALLOWED_ERROR,
            "topics without storage (non-persistent://) are not offered here: use persistent://",
        )
    if separator and scheme != _PERSISTENT:
        shown = ascii(scheme[:_SHOWN_CHARACTERS])
        return Refusal(ServerError.INVALID_TOPIC_NAME, f"a topic begins with persistent://, not with {shown}")
    try:
        topic = parse_topic(text)
    except InvalidName as error:
        return refusal_of(error)
    if is_of_doors(topic.local):
        sentence = f"topics whose names begin with {DOORS_PREFIX} belong to the doors: choose another name"
        return Refusal(ServerError.NOT_ALLOWED_ERROR, sentence)
    return topic


def namespace_of(text: str) -> NamespaceName | Refusal:
    """The namespace that a client names, as tenant/namespace."""
    try:
        return parse_namespace(text)
    except InvalidName as error:
        return refusal_of(error)


def has_no_partitions(topic: TopicName) -> bool:
    """Whether the topic is known to have none, without a request to the cluster: then a client that wants transactions
    fails at once, when it is built (hazard transactions-retried-for-ever)."""
    return topic == _COORDINATORS


def producer_name_of(text: str) -> str | Refusal | None:
    """The name that a client chose for its producer; None: it wants one assigned."""
    if not text:
        return None
    if text.startswith(_REPLICATION):
        return Refusal(
            ServerError.NOT_ALLOWED_ERROR,
            f"producer names that begin with {_REPLICATION} belong to the replication between clusters of Pulsar, "
            "which is not offered here: choose another name",
        )
    try:
        return check_producer_name(text)
    except InvalidName as error:
        return refusal_of(error)
