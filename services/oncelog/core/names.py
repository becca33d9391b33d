"""Names of tenants, namespaces, topics and producers: their rules and short forms.

A topic is `tenant/namespace/name`; `name` alone stands for `public/default/name`, and a leading `persistent://` is
accepted and dropped. A partition of a topic is `name-partition-N`. Each element of a topic name is 1 to 255
characters of `A-Z a-z 0-9 _ - = : .`, but not `.` or `..`, because it becomes a path element in ZooKeeper.
A producer name is 1 to 255 printable characters of any script, at most 1000 bytes in UTF-8.
Source: Pulsar's NamedEntity and topic names.
"""

import re
from dataclasses import dataclass

from oncelog.core.errors import InvalidArgument, InvalidName, PermissionDenied

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"
PART_CHARACTERS_MAX = 255
PRODUCER_CHARACTERS_MAX = 255
PRODUCER_BYTES_MAX = 1000
#: Each client gets the whole list of a topic's partitions, and they are deleted together.
PARTITIONS_MAX = 1_000
IDEMPOTENCY_KEY_MAX = 255
#: At most nine digits, so a partition number always fits 31 bits.
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})", re.ASCII)
_PART = re.compile(r"[-=:.\w]+", re.ASCII)
_SCHEME = "persistent://"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """`tenant/namespace`, both valid."""

    tenant: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A valid topic name. partition: N of `local-partition-N`; None for a topic that is not a partition."""

    tenant: str
    namespace: str
    local: str
    partition: int | None = None

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.local_full}"

    @property
    def local_full(self) -> str:
        """The last element of the name, with the partition's suffix."""
        return self.local if self.partition is None else f"{self.local}-partition-{self.partition}"

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)


def parse_topic(text: str) -> TopicName:
    """Read a topic name in any accepted form. Raises InvalidName, whose details name the field and the limit."""
    parts = _split(text, field="topic")
    if len(parts) == 1:
        parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, *parts]
    if len(parts) != 3:
        raise InvalidName(f"topic must be `name` or `tenant/namespace/name`, not {_shown(text)}", field="topic")
    tenant = check_part(parts[0], field="tenant")
    namespace = check_part(parts[1], field="namespace")
    local = check_part(parts[2], field="topic")
    match = _PARTITION.fullmatch(local)
    if match is None:
        return TopicName(tenant, namespace, local)
    return TopicName(tenant, namespace, match[1], int(match[2]))


def whole_topic(name: str) -> str:
    """The topic that a valid full name is a partition of; the name itself if it is no partition."""
    match = _PARTITION.fullmatch(name)
    return name if match is None else match[1]


def parse_namespace(text: str) -> NamespaceName:
    """Read `tenant/namespace`, or `namespace` for `public/namespace`. Raises InvalidName."""
    parts = _split(text, field="namespace")
    if len(parts) == 1:
        parts = [DEFAULT_TENANT, *parts]
    if len(parts) != 2:
        raise InvalidName(f"namespace must be `tenant/namespace`, not {_shown(text)}", field="namespace")
    return NamespaceName(check_part(parts[0], field="tenant"), check_part(parts[1], field="namespace"))


def check_part(text: str, *, field: str) -> str:
    """Return one element of a topic name when it is legal. Raises InvalidName naming `field` and the limit."""
    if not text:
        raise InvalidName(f"{field} is empty: give 1 to {PART_CHARACTERS_MAX} characters", field=field, limit=1)
    if len(text) > PART_CHARACTERS_MAX:
        raise InvalidName(
            f"{field} has {len(text)} characters, at most {PART_CHARACTERS_MAX} are allowed",
            field=field,
            limit=PART_CHARACTERS_MAX,
        )
    if _PART.fullmatch(text) is None:
        raise InvalidName(f"{field} {_shown(text)} has a character outside A-Z a-z 0-9 _ - = : .", field=field)
    if text in {".", ".."}:
        raise InvalidName(f"{field} may not be {text!r}", field=field)
    return text


def is_of_doors(local: str) -> bool:
    """Whether a topic with this last element belongs to doors: clients neither see nor use it."""
    return local.startswith(DOORS_PREFIX)


def check_partitions(topic: TopicName, count: int) -> None:
    """Whether the names of so many partitions are legal: else those could never be used. Raises InvalidName."""
    last = TopicName(topic.tenant, topic.namespace, topic.local, count - 1).local_full
    if (more := len(last) - PART_CHARACTERS_MAX) > 0:
        longest = len(topic.local) - more
        message = f"topic has {len(topic.local)} characters: with {count} partitions at most {longest} are allowed"
        raise InvalidName(message, field="topic", limit=longest)


#: Of the producers that store dead letters: the topic id and the number of their subscription follow.
DEAD_LETTERS = "dead-letters/"
#: Of a dead-letter topic that no consumer names.
DEAD_LETTER_SUFFIX = "-DLQ"
#: The property of a subscription that keeps which dead letters were redriven: the topic that they come from.
REDRIVE_TOPIC = "redrive.topic"
#: Of the producers that publish dead letters again: the id of the dead-letter topic and the subscription follow.
REDRIVE = "redrive/"
#: Of the producers that store the outputs of effects, the rows of an outbox, the copies of another cluster's topics.
EFFECTS, RELAY, MIRROR = "effects/", "relay/", "mirror/"
#: Of the producers that a gateway opens for clients of Kafka.
KAFKA = "kafka/"
#: Of the topics that doors keep in a namespace for themselves, as those with the schemas of Pulsar's clients.
DOORS_PREFIX = "__oncelog_"
#: The topic of each namespace whose owner coordinates the groups of such clients.
KAFKA_GROUPS = f"{DOORS_PREFIX}kafka_groups"
#: How the names of producers begin that the services open for themselves (hazard foreign-producer-name).
SERVICE_PREFIXES = (DEAD_LETTERS, REDRIVE, KAFKA)
#: Of the producers that Oncelog's own programs open with the rights of the role that runs them.
PROGRAM_PREFIXES = (EFFECTS, RELAY, MIRROR)


def is_reserved(name: str) -> bool:
    """Whether what is stored under the name says what its producer has done. Sequence ids of such a producer are also
    checked where deduplication is switched off (hazard output-without-deduplication)."""
    return name.startswith((*SERVICE_PREFIXES, *PROGRAM_PREFIXES))


def is_of_a_program(name: str) -> bool:
    """Whether the producer is one of Oncelog's own programs, which read what they publish to."""
    return name.startswith(PROGRAM_PREFIXES)


def refuse_reserved_name(name: str, *, stated: bool) -> None:
    """Raises PermissionDenied for the name of a producer that only the services may open: what another one stored under
    it would count as stored by them. stated: the caller opens it for another role, as HTTP publish does; then the names
    of Oncelog's programs are refused, too. Otherwise such a name belongs to the first role that opens it, as any other,
    but it needs one more right (`is_of_a_program`): who may only publish does not keep a program from its name.
    """
    if name.startswith((*SERVICE_PREFIXES, *PROGRAM_PREFIXES) if stated else SERVICE_PREFIXES):
        prefix = name.split("/", 1)[0]
        raise PermissionDenied(
            f"producer names that begin with {prefix}/ belong to the services: choose another name",
            field="producer_name",
        )


def check_idempotency_key(key: str, *, field: str) -> str:
    """Return the key when it is legal. Raises InvalidArgument naming `field` and the limit."""
    if not isinstance(key, str):
        raise InvalidArgument(f"{field} must be a string, not {type(key).__name__}", field=field)
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not (key.isascii() and key.isprintable()):
        message = f"an idempotency key must have 1 to {IDEMPOTENCY_KEY_MAX} printable ASCII characters"
        raise InvalidArgument(message, field=field, limit=IDEMPOTENCY_KEY_MAX)
    return key


def check_producer_name(name: str) -> str:
    """Return a producer's name when it is legal. Raises InvalidName naming the limit it breaks."""
    field = "producer_name"
    if not isinstance(name, str):
        raise InvalidName(f"{field} must be a string, not {type(name).__name__}", field=field)
    if not name:
        raise InvalidName(
            f"{field} is empty: give 1 to {PRODUCER_CHARACTERS_MAX} characters, or omit it to have a name assigned",
            field=field,
            limit=1,
        )
    if len(name) > PRODUCER_CHARACTERS_MAX:
        raise InvalidName(
            f"{field} has {len(name)} characters, at most {PRODUCER_CHARACTERS_MAX} are allowed",
            field=field,
            limit=PRODUCER_CHARACTERS_MAX,
        )
    if not name.isprintable():
        raise InvalidName(f"{field} {_shown(name)} has a control or unprintable character", field=field)
    if len(name.encode()) > PRODUCER_BYTES_MAX:
        raise InvalidName(
            f"{field} has more than {PRODUCER_BYTES_MAX} bytes in UTF-8", field=field, limit=PRODUCER_BYTES_MAX
        )
    return name


def _split(text: str, *, field: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidName(f"{field} must be a string, not {type(text).__name__}", field=field)
    # Splitting stops at four elements, so that a hostile name with a million slashes costs nothing.
    return text.removeprefix(_SCHEME).split("/", 3)


def _shown(text: str) -> str:
    """The name for an error message: escaped and shortened."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def dead_letter_topic(topic: TopicName, subscription: str, named: str) -> TopicName:
    """The dead-letter topic of a subscription to `topic`. named: by its consumers; empty: they name none. A consumer
    who names it must be allowed to produce to it.

    The default is that of Pulsar: the partitions of a topic share it. Raises InvalidName, InvalidArgument.
    """
    name = parse_topic(named or f"{topic.namespace_name}/{topic.local}-{subscription}{DEAD_LETTER_SUFFIX}")
    if name == topic:
        raise InvalidArgument("a topic cannot be its own dead-letter topic", field="dead_letter_topic")
    return name
