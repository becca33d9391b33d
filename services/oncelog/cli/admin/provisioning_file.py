"""The file of `oncelog admin apply`: what a cluster should have, as YAML or JSON.

    cluster: {POLICY: VALUE}
    tenants: [TENANT]
    namespaces:
      TENANT/NAMESPACE: {POLICY: VALUE, rights: {ROLE: [RIGHT]}}
    topics:
      TENANT/NAMESPACE/TOPIC: {partitions: COUNT, POLICY: VALUE}

The policies have the names and values of docs/rest.md. Everything that can be known without the cluster is checked
before the first request: unknown and repeated fields, types and names. The limits of values are those of the REST
interface.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.cli.admin.rest import Answer
from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument, InvalidName
from oncelog.core.names import check_part, parse_namespace, parse_topic


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A place in the file, for error messages."""

    file: str
    path: str = ""

    def inside(self, name: str) -> "FilePosition":
        return FilePosition(self.file, f"{self.path}.{name}" if self.path else name)

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file

    def refused(self, why: str) -> InvalidArgument:
        return InvalidArgument(f"{self}: {why}", field=self.path)


#: Returns the body of a REST request, from a value of the file. Raises InvalidArgument.
Shape = Callable[[FilePosition, object], Answer]


class Policy(NamedTuple):
    """One policy. path: the last element of its REST path; topic_path: the same for a topic, empty: not for topics."""

    shape: Shape
    path: str
    topic_path: str


@dataclass(frozen=True, slots=True)
class WantedNamespace:
    """Policies by the name of their field, and the rights of each role, sorted."""

    policies: Mapping[str, Answer]
    rights: Mapping[str, list[object]]


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """partitions: None if the file does not say."""

    policies: Mapping[str, Answer]
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content of the file; names are complete."""

    file: str
    cluster: Mapping[str, Answer] = field(default_factory=dict)
    tenants: tuple[str, ...] = ()
    namespaces: Mapping[str, WantedNamespace] = field(default_factory=dict)
    topics: Mapping[str, WantedTopic] = field(default_factory=dict)


def read_file(path: Path) -> Wanted:
    """Read and check the file. Raises InvalidArgument, whose message has file, path and field; OSError
    if it cannot be read."""
    place = FilePosition(path.name)
    root = _fields(place, _parsed(path), ("cluster", "tenants", "namespaces", "topics"))
    cluster, tenants = place.inside("cluster"), place.inside("tenants")
    return Wanted(
        file=path.name,
        cluster=_policies(cluster, _fields(cluster, root.get("cluster"), tuple(POLICIES)), POLICIES),
        tenants=tuple(_name(tenants, _part("tenant"), each) for each in _list(tenants, root.get("tenants", []))),
        namespaces=_named(place.inside("namespaces"), root.get("namespaces", {}), parse_namespace, _namespace),
        topics=_named(place.inside("topics"), root.get("topics", {}), _whole_topic, _topic),
    )


# --- objects ----------------------------------------------------------------------------------------------------------


def _namespace(place: FilePosition, value: object) -> WantedNamespace:
    given = _fields(place, value, (*POLICIES, "rights"))
    roles = place.inside("rights")
    rights = _named(roles, given.get("rights", {}), _part("role"), _rights)
    return WantedNamespace(_policies(place, given, POLICIES), rights)


def _topic(place: FilePosition, value: object) -> WantedTopic:
    known = {name: policy for name, policy in POLICIES.items() if policy.topic_path}
    given = _fields(place, value, ("partitions", *known))
    partitions: int | None = None
    if "partitions" in given:
        here = place.inside("partitions")
        partitions = _whole_number(here, given["partitions"])
        if partitions < 1:
            raise here.refused("must be 1 or more; leave it out for a topic without partitions")
    return WantedTopic(_policies(place, given, known), partitions)


def _rights(place: FilePosition, value: object) -> list[object]:
    """Sorted, each once. An empty list: the role has no rights."""
    known = sorted(right.value for right in Right)
    for each in _list(place, value):
        if each not in known:
            raise place.refused(f"unknown right {each!r}; known: {', '.join(known)}")
    found: list[object] = [right for right in known if right in _list(place, value)]
    return found


def _policies(place: FilePosition, given: Mapping[str, object], known: Mapping[str, Policy]) -> dict[str, Answer]:
    return {name: policy.shape(place.inside(name), given[name]) for name, policy in known.items() if name in given}


def _named(
    place: FilePosition, value: object, name_of: Callable[[str], object], content: Callable[[FilePosition, object], Any]
) -> dict[str, Any]:
    """{complete name: content}."""
    found: dict[str, Any] = {}
    for key, inner in _mapping(place, value).items():
        name = _name(place, name_of, key)
        if name in found:
            raise place.refused(f"{name} is there twice")
        found[name] = content(place.inside(key), inner)
    return found


def _name(place: FilePosition, name_of: Callable[[str], object], value: object) -> str:
    if not isinstance(value, str):
        raise place.refused(f"a name must be text, not {_shown(value)}; put it in quotes")
    try:
        return str(name_of(value))
    except InvalidName as error:
        raise place.refused(error.message) from error


def _whole_topic(text: str) -> str:
    topic = parse_topic(text)
    if topic.partition is not None:
        raise InvalidName(f"{text} is one partition: name its topic {topic.local}, with `partitions`", field="topic")
    return str(topic)


def _part(noun: str) -> Callable[[str], str]:
    return lambda text: check_part(text, field=noun)


# --- values -----------------------------------------------------------------------------------------------------------


def _switch(place: FilePosition, value: object) -> Answer:
    if not isinstance(value, bool):
        raise place.refused(f"must be true or false, not {_shown(value)}")
    return value


def _whole_number(place: FilePosition, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise place.refused(f"must be a whole number, not {_shown(value)}")
    return value


def _retention(place: FilePosition, value: object) -> Answer:
    names = ("retentionTimeInMinutes", "retentionSizeInMB")
    given = _fields(place, value, names)
    if missing := [name for name in names if name not in given]:
        raise place.refused(f"{missing[0]} is missing; -1 is no limit")
    return {name: _whole_number(place.inside(name), given[name]) for name in names}


def _quota(place: FilePosition, value: object) -> Answer:
    given = _fields(place, value, ("limitSize", "limitTime", "policy"))
    if not isinstance(given.get("policy"), str):
        raise place.inside("policy").refused(
            "must be producer_request_hold, producer_exception or consumer_backlog_eviction"
        )
    limits = {name: _whole_number(place.inside(name), given.get(name, -1)) for name in ("limitSize", "limitTime")}
    return {**limits, "policy": given["policy"]}


def _everywhere(shape: Shape, path: str) -> Policy:
    return Policy(shape, path, path)


#: {field: the policy}, in the order in which they are applied.
POLICIES: Mapping[str, Policy] = {
    "deduplication": Policy(_switch, "deduplication", "deduplicationEnabled"),
    "autoTopicCreation": Policy(_switch, "autoTopicCreation", ""),
    "retention": _everywhere(_retention, "retention"),
    "messageTTL": _everywhere(_whole_number, "messageTTL"),
    "backlogQuota": _everywhere(_quota, "backlogQuota"),
    "dispatcherPauseOnAckStatePersistent": _everywhere(_switch, "dispatcherPauseOnAckStatePersistent"),
    "maxUnackedRangesToPersist": _everywhere(_whole_number, "maxUnackedRangesToPersist"),
    "ackStateBytesMax": _everywhere(_whole_number, "ackStateBytesMax"),
    "assignedProducerExpiry": _everywhere(_whole_number, "assignedProducerExpiry"),
    "chosenProducerExpiry": _everywhere(_whole_number, "chosenProducerExpiry"),
    "producerLeaseExpiry": _everywhere(_whole_number, "producerLeaseExpiry"),
    "maxKnownProducersPerTopic": _everywhere(_whole_number, "maxKnownProducersPerTopic"),
    "maxKnownProducersPerNamespace": Policy(_whole_number, "maxKnownProducersPerNamespace", ""),
    "pulsarNewInstanceFences": _everywhere(_switch, "pulsarNewInstanceFences"),
    "pulsarAcceptStale": _everywhere(_switch, "pulsarAcceptStale"),
    "pulsarAcceptOtherContent": _everywhere(_switch, "pulsarAcceptOtherContent"),
    "pulsarRefuseUnverified": _everywhere(_switch, "pulsarRefuseUnverified"),
    "pulsarAckUndecodable": _everywhere(_switch, "pulsarAckUndecodable"),
    "kafkaCompact": _everywhere(_switch, "kafkaCompact"),
}


# --- YAML -------------------------------------------------------------------------------------------------------------


def _parsed(path: Path) -> object:
    import yaml  # slow to load, and no other command needs it

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice: YAML's readers would silently take the last one."""

    def unique(loader: Any, node: Any) -> dict[object, object]:
        loader.flatten_mapping(node)
        found: dict[object, object] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool | None):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
            if key in found:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is there twice", key_node.start_mark)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, unique)
    try:
        parsed = yaml.load(path.read_bytes(), Loader=Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise FilePosition(path.name).refused(f"not valid YAML: {' '.join(str(error).split())}") from error
    return {} if parsed is None else parsed


def _mapping(place: FilePosition, value: object) -> dict[str, object]:
    """The fields of an object; one without content (`orders:`) is empty. The names are not checked."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise place.refused(f"must be a mapping, not {_shown(value)}")
    return value


def _list(place: FilePosition, value: object) -> list[object]:
    if not isinstance(value, list):
        raise place.refused(f"must be a list, not {_shown(value)}")
    return value


def _fields(place: FilePosition, value: object, known: tuple[str, ...]) -> dict[str, object]:
    """The fields of an object that may have only these."""
    given = _mapping(place, value)
    for name in given:
        if name not in known:
            raise place.refused(f"unknown field {name}; known: {', '.join(sorted(known))}")
    return given


def _shown(value: object) -> str:
    """The value for an error message."""
    text = repr(value)
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return kinds.get(type(value), text if len(text) <= 60 else f"{text[:60]}…")
