"""`oncelog admin policy`: show, set and unset the policies of the cluster, a namespace or a topic.

One table has the names, values, limits, defaults and meanings. What `show` prints as a value is what `set` takes.
"""

import textwrap
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, NamedTuple, cast

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.provisioning_file import POLICIES
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import cluster_path, namespace_path, topic_path
from oncelog.cli.admin.units import NO_LIMIT, bytes_of, seconds_of, shown_bytes, shown_seconds
from oncelog.core.errors import InvalidArgument
from oncelog.core.policies.producer_caps import NAMESPACE_PRODUCERS_MAX, TOPIC_PRODUCERS_MAX
from oncelog.core.policies.producer_lifetimes import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN, POLICY_MS_MIN
from oncelog.core.policies.retention_rules import QUOTA_BYTES_MAX, QUOTA_SECONDS_MAX

#: How the level of all namespaces is typed.
CLUSTER = "cluster"
_MINUTE_S, _MIB = 60, 1 << 20
_COUNT_MAX = 2**31 - 1
#: `core.policies.ack_state_limit` has it, too, and loads what help needs not.
_STATE_BYTES_MAX = 64 << 20
#: Our words for what a backlog quota does, and Pulsar's.
_QUOTA_ACTIONS = {
    "hold": "producer_request_hold",
    "refuse": "producer_exception",
    "evict": "consumer_backlog_eviction",
}


class _Form(NamedTuple):
    """typed: what `set` takes, for the help. body: of the REST request, from the name of the policy and its values;
    raises InvalidArgument, which names the policy. shown: what `show` prints, from what the REST interface answers."""

    typed: str
    body: Callable[[str, Sequence[str]], Answer]
    shown: Callable[[Answer], str]


# --- values -----------------------------------------------------------------------------------------------------------


def _only(name: str, values: Sequence[str]) -> str:
    if len(values) != 1:
        raise InvalidArgument(f"{name}: takes one value, not {len(values)}", field=name)
    return values[0]


def _fields(name: str, values: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Of `time=7d size=10G`."""
    found: dict[str, str] = {}
    for typed in values:
        field, equals, value = typed.partition("=")
        if not equals or field not in known:
            raise InvalidArgument(f"{name}: {typed!r} is none of {', '.join(f'{each}=' for each in known)}", field=name)
        if field in found:
            raise InvalidArgument(f"{name}: {field}= is there twice", field=name)
        found[field] = value
    return found


def _within(name: str, value: int, least: int, most: int, shown: Callable[[int], str] = str) -> int:
    if not least <= value <= most:
        limit = least if value < least else most
        message = f"{name}: must be {shown(least)} to {shown(most)} ({least} to {most}), not {shown(value)}"
        raise InvalidArgument(message, field=name, limit=limit)
    return value


def _switch() -> _Form:
    def body(name: str, values: Sequence[str]) -> Answer:
        typed = _only(name, values)
        if typed not in {"on", "off"}:
            raise InvalidArgument(f"{name}: must be on or off, not {typed!r}", field=name)
        return typed == "on"

    return _Form("on | off", body, lambda answer: "on" if answer else "off")


def _number(
    typed: str, parse: Callable[[str, str], int], shown: Callable[[int], str], *, least: int, most: int, zero: str = ""
) -> _Form:
    """zero: the word for 0, which is allowed then."""

    def body(name: str, values: Sequence[str]) -> Answer:
        value = 0 if zero and _only(name, values) == zero else parse(_only(name, values), name)
        return value if zero and value == 0 else _within(name, value, least, most, shown)

    return _Form(typed, body, lambda answer: zero if zero and answer == 0 else shown(_as_int(answer)))


def _as_int(answer: object) -> int:
    assert isinstance(answer, int), answer
    return answer


def _count(typed: str, name: str) -> int:
    if not (typed.isascii() and typed.isdecimal()) or len(typed) > 18:
        raise InvalidArgument(f"{name}: {typed!r} is no number", field=name)
    return int(typed)


def _lifetime() -> _Form:
    return _number(
        "7d, at least 8h | never", seconds_of, shown_seconds, least=POLICY_MS_MIN // 1000, most=_COUNT_MAX, zero="never"
    )


def _producers() -> _Form:
    return _number("1000 | none", _count, str, least=1, most=_COUNT_MAX, zero="none")


def _retention() -> _Form:
    words: dict[tuple[int, int], str] = {(NO_LIMIT, NO_LIMIT): "forever", (0, 0): "off"}

    def body(name: str, values: Sequence[str]) -> Answer:
        for (minutes, size_mb), word in words.items():
            if list(values) == [word]:
                return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}
        if len(values) == 1 and "=" not in values[0]:
            values = [f"time={values[0]}"]
        given = _fields(name, values, ("time", "size"))
        seconds, size_bytes = seconds_of(given.get("time", "-1"), name), bytes_of(given.get("size", "-1"), name)
        for value, unit, field, shown in ((seconds, _MINUTE_S, "time", "1m"), (size_bytes, _MIB, "size", "1M")):
            if value == 0:
                raise InvalidArgument(f"{name}: {field}=0 would keep nothing: use `off` for that", field=name)
            if value > 0 and value % unit:
                raise InvalidArgument(f"{name}: {field}= counts in steps of {shown}", field=name, limit=unit)
        return {
            "retentionTimeInMinutes": seconds if seconds == NO_LIMIT else seconds // _MINUTE_S,
            "retentionSizeInMB": size_bytes if size_bytes == NO_LIMIT else size_bytes // _MIB,
        }

    def shown(answer: Answer) -> str:
        assert isinstance(answer, dict), answer
        minutes, size_mb = _as_int(answer["retentionTimeInMinutes"]), _as_int(answer["retentionSizeInMB"])
        if word := words.get((minutes, size_mb)):
            return word
        time = [] if minutes == NO_LIMIT else [f"time={shown_seconds(minutes * _MINUTE_S)}"]
        return " ".join([*time, *([] if size_mb == NO_LIMIT else [f"size={shown_bytes(size_mb * _MIB)}"])])

    return _Form("time=7d size=10G | 7d | forever | off", body, shown)


def _quota() -> _Form:
    def body(name: str, values: Sequence[str]) -> Answer:
        if list(values) == ["none"]:
            return {"limitSize": NO_LIMIT, "limitTime": NO_LIMIT, "policy": _QUOTA_ACTIONS["hold"]}
        given = _fields(name, values, ("size", "time", "then"))
        if "then" not in given or len(given) == 1:
            raise InvalidArgument(f"{name}: give size= or time=, and then=hold, refuse or evict", field=name)
        action = _QUOTA_ACTIONS.get(given["then"], given["then"])
        if action not in _QUOTA_ACTIONS.values():
            raise InvalidArgument(f"{name}: then={given['then']} is none of hold, refuse, evict", field=name)
        limits = {"limitSize": NO_LIMIT, "limitTime": NO_LIMIT}
        if "size" in given:
            limits["limitSize"] = _within(name, bytes_of(given["size"], name), 1, QUOTA_BYTES_MAX, shown_bytes)
        if "time" in given:
            limits["limitTime"] = _within(name, seconds_of(given["time"], name), 1, QUOTA_SECONDS_MAX, shown_seconds)
        return {**limits, "policy": action}

    def shown(answer: Answer) -> str:
        assert isinstance(answer, dict), answer
        size, seconds = _as_int(answer["limitSize"]), _as_int(answer["limitTime"])
        limits = [] if size == NO_LIMIT else [f"size={shown_bytes(size)}"]
        limits += [] if seconds == NO_LIMIT else [f"time={shown_seconds(seconds)}"]
        action = next((ours for ours, theirs in _QUOTA_ACTIONS.items() if theirs == answer["policy"]), "?")
        return " ".join([*limits, f"then={action}"]) if limits else "none"

    return _Form("size=10G time=7d then=hold | none", body, shown)


# --- the table --------------------------------------------------------------------------------------------------------


class _Policy(NamedTuple):
    """rest: its name in the REST interface, which is taken, too. default: where no level sets it, as `set` takes it."""

    rest: str
    form: _Form
    default: str
    meaning: str


_TTL = _number("7d | never", seconds_of, shown_seconds, least=1, most=_COUNT_MAX, zero="never")
_RANGES = _number("1000", _count, str, least=0, most=_COUNT_MAX)
_STATE = _number("4M, at most 64M", bytes_of, shown_bytes, least=0, most=_STATE_BYTES_MAX)
_LEASES = _number(
    "7d, 10s to 366d", seconds_of, shown_seconds, least=LEASE_MS_MIN // 1000, most=LEASE_MS_MAX // 1000
)  # fmt: skip

#: {name as it is typed: the policy}
TABLE = {
    "deduplication": _Policy(
        "deduplication", _switch(), "on", "a message that a producer sends again is stored once"
    ),
    "auto-topic-creation": _Policy(
        "autoTopicCreation", _switch(), "on", "the first use of a topic creates it"
    ),
    "retention": _Policy(
        "retention", _retention(), "forever",
        "how long acknowledged messages are kept; off: not at all",
    ),
    "message-ttl": _Policy(
        "messageTTL", _TTL, "never", "age from which a message counts as acknowledged"
    ),
    "backlog-quota": _Policy(
        "backlogQuota", _quota(), "none",
        "limit of unacknowledged messages; above it publishing waits (hold) or fails (refuse), or the oldest "
        "messages count as acknowledged (evict)",
    ),
    "assigned-producer-expiry": _Policy(
        "assignedProducerExpiry", _lifetime(), shown_seconds(LEASE_MS // 1000),
        "idle time after which a producer with an assigned name is forgotten",
    ),
    "chosen-producer-expiry": _Policy(
        "chosenProducerExpiry", _lifetime(), "never", "the same for a producer whose name an application has chosen"
    ),
    "producer-lease-expiry": _Policy(
        "producerLeaseExpiry", _LEASES, shown_seconds(LEASE_MS // 1000),
        "idle time after which a leased producer id expires",
    ),
    "max-known-producers-per-topic": _Policy(
        "maxKnownProducersPerTopic", _producers(), str(TOPIC_PRODUCERS_MAX),
        "producers that a topic remembers, connected or not",
    ),
    "max-known-producers-per-namespace": _Policy(
        "maxKnownProducersPerNamespace", _producers(), str(NAMESPACE_PRODUCERS_MAX),
        "the same for all topics of a namespace at one owner",
    ),
    "dispatcher-pause-on-ack-state-persistent": _Policy(
        "dispatcherPauseOnAckStatePersistent", _switch(), "off",
        "nothing new is delivered while the ack state of a subscription is above a limit (PIP-299)",
    ),
    "max-unacked-ranges-to-persist": _Policy(
        "maxUnackedRangesToPersist", _RANGES, "200000",
        "that limit, in acknowledged ranges; 0: as soon as there is one",
    ),
    "ack-state-bytes-max": _Policy(
        "ackStateBytesMax", _STATE, "4M", "that limit, in bytes; 0: as soon as there is one"
    ),
    "pulsar-new-instance-fences": _Policy(
        "pulsarNewInstanceFences", _switch(), "off",
        "a new producer of a client of Pulsar takes its name from one that is connected; off: it is refused",
    ),
    "pulsar-accept-stale": _Policy(
        "pulsarAcceptStale", _switch(), "off",
        "a client of Pulsar gets a receipt for an id below stored ones that was never stored; off: an error",
    ),
    "pulsar-accept-other-content": _Policy(
        "pulsarAcceptOtherContent", _switch(), "off",
        "a client of Pulsar gets a receipt for another message under a stored id; off: an error",
    ),
    "pulsar-refuse-unverified": _Policy(
        "pulsarRefuseUnverified", _switch(), "off",
        "a client of Pulsar gets an error for an id that is too old to be compared; off: a receipt",
    ),
    "pulsar-ack-undecodable": _Policy(
        "pulsarAckUndecodable", _switch(), "off",
        "a message that a client of Pulsar cannot decode is acknowledged; off: it is delivered again after a minute",
    ),
    "kafka-compact": _Policy(
        "kafkaCompact", _switch(), "off",
        "clients of Kafka are shown cleanup.policy=compact; off: delete. Nothing is compacted",
    ),
}  # fmt: skip


def _listed() -> str:
    """The table, as help shows it: its lines are as long as they are."""
    lines = [f"{name}: {each.form.typed} [{each.default}]: {each.meaning}" for name, each in TABLE.items()]
    return "\n".join(textwrap.fill(line, 76, subsequent_indent="    ", break_on_hyphens=False) for line in lines)


_HELP = f"""Show, set and unset policies. The most specific level that sets one wins.

\b
  oncelog admin policy show public/shop/orders
  oncelog admin policy set public/shop retention time=7d size=10G
  oncelog admin policy set cluster message-ttl 30d
  oncelog admin policy unset public/shop retention

PLACE is `cluster`, a namespace TENANT/NAMESPACE or a topic TENANT/NAMESPACE/TOPIC. NAME and VALUE, with the default in
brackets:

\b
{_listed()}"""

policy = typer.Typer(help=_HELP, no_args_is_help=True)


class _Place(NamedTuple):
    """level: cluster, namespace or topic. path: of the place in the REST interface."""

    level: str
    path: str


def _complete(typed: str) -> list[str]:
    return [name for name in TABLE if name.startswith(typed)]


PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="cluster, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="See `policy --help`.", autocompletion=_complete)]
OneOrAllArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="One policy; by default all of them.", autocompletion=_complete),
]
ValuesArgument = Annotated[list[str], typer.Argument(metavar="VALUE...", help="See `policy --help`.")]


@admin_command(policy, "show")
def show_policies(api: AdminApi, place: PlaceArgument, name: OneOrAllArgument = None) -> Report:
    """Show the policies that apply at a place, and the level that each comes from.

    A value is shown as `set` takes it. With -o json: the value of the REST interface.
    """
    at = _place(api, place)
    known = [each for each in TABLE if _path(at, each)] if name is None else [_named(name)]
    found = {each: api.get(_required_path(at, each), applied=True) for each in known}
    rows: list[object] = []
    answers: list[dict[str, object]] = []
    for each, applied in found.items():
        assert isinstance(applied, dict), applied
        value, source = cast("Answer", applied["value"]), applied["source"]
        rows.append({"policy": each, "value": TABLE[each].form.shown(value), "from": source})
        answers.append({"policy": each, "value": value, "source": source})
    return Report(rows, list(answers) if name is None else answers[0])


@admin_command(policy, "set")
def set_policy(api: AdminApi, place: PlaceArgument, name: NameArgument, values: ValuesArgument) -> Answer:
    """Set a policy at a place. It takes effect at once, also for topics that are served."""
    found = _named(name)
    body = TABLE[found].form.body(found, values)
    api.post(_required_path(_place(api, place), found), body)
    return f"{found} of {place}: {TABLE[found].form.shown(body)}"


@admin_command(policy, "unset")
def unset_policy(api: AdminApi, place: PlaceArgument, name: NameArgument) -> Answer:
    """Remove a policy from a place. Then the next level decides: the namespace, the cluster, the default."""
    found, at = _named(name), _place(api, place)
    api.delete(_required_path(at, found))
    decides = f"the default applies, {TABLE[found].default}" if at.level == CLUSTER else "the next level decides"
    return f"{found} of {place}: not set; {decides}"


def _named(typed: str) -> str:
    """Raises InvalidArgument."""
    for name, each in TABLE.items():
        if typed in {name, each.rest}:
            return name
    close = get_close_matches(typed, TABLE, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise InvalidArgument(f"name: there is no policy {typed!r}{meant} Known: {', '.join(TABLE)}", field="name")


def _place(api: AdminApi, typed: str) -> _Place:
    """Raises InvalidArgument, InvalidName."""
    if typed == CLUSTER:
        return _Place(CLUSTER, cluster_path(api))
    match typed.removeprefix("persistent://").count("/"):
        case 1:
            return _Place("namespace", namespace_path(typed))
        case 2:
            return _Place("topic", topic_path(typed))
    raise InvalidArgument(
        f"place: {typed!r} is neither `cluster` nor TENANT/NAMESPACE nor TENANT/NAMESPACE/TOPIC; a topic of the "
        f"default namespace is public/default/{typed.rpartition('/')[2]}",
        field="place",
    )


def _path(at: _Place, name: str) -> str:
    """Of the policy there; empty: a topic has no such policy."""
    row = POLICIES[TABLE[name].rest]
    last = row.topic_path if at.level == "topic" else row.path
    return f"{at.path}/{last}" if last else ""


def _required_path(at: _Place, name: str) -> str:
    path = _path(at, name)
    if not path:
        raise InvalidArgument(f"name: {name} is no policy of a topic: set it for its namespace", field="name")
    return path
