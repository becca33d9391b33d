"""Commands for policies: switches, retention, time to live, backlog quota, the limits of the ack state, and the
expiry of producers.

The same three commands at each level: set, get, remove. Durations and sizes are typed with units: 30m, 7d, 500M, 10G.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.provisioning_file import POLICIES
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.units import NO_LIMIT, bytes_of, seconds_of
from oncelog.cli.parameters import option_parameter, own_parameters, sign
from oncelog.core.errors import InvalidArgument
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN, POLICY_MS_MIN
from oncelog.core.policies.retention_rules import QUOTA_BYTES_MAX, QUOTA_SECONDS_MAX

#: The group of the policies in the help. Each has three commands, so the line of each is short there.
_PANEL = "Policies: the most specific level that sets one wins"
#: Returns the path of an object, from the name that the user typed.
Place = Callable[[AdminApi, str], str]
#: Where the level is the cluster, and no name is typed.
_CLUSTER = "the cluster"


class QuotaOption(StrEnum):
    """Pulsar's names of what a backlog quota does."""

    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


Enable = Annotated[bool, typer.Option("--enable/--disable", help="Turn the switch on or off.")]
Applied = Annotated[bool, typer.Option("--applied", help="Show the effective value, and the level that it comes from.")]
RetentionTime = Annotated[
    str, typer.Option("--time", "-t", help="How long: 30m, 12h, 7d; -1: no limit; 0 with --size 0: not at all.")
]
RetentionSize = Annotated[str, typer.Option("--size", "-s", help="How much: 500M, 10G; -1: no limit.")]
TtlOption = Annotated[str, typer.Option("--ttl", "-t", help="Age from which messages expire: 30m, 7d; 0: never.")]
# `--limit` is Pulsar's name of what its REST interface calls limitSize.
QuotaSize = Annotated[
    str,
    typer.Option(
        "--limit-size", "--limit", "-l", help="Bytes of unacknowledged messages: 10G; at least 1; -1: no limit."
    ),
]
QuotaTime = Annotated[
    str,
    typer.Option(
        "--limit-time", "-lt", help="Age of the oldest unacknowledged message: 7d; at least 1s; -1: no limit."
    ),
]
ProducersOption = Annotated[int, typer.Option("--max", min=0, help="Producers, connected or not; 0: no cap.")]
NamesAfterOption = Annotated[
    str, typer.Option("--after", help="Time without a message or a connection: 7d; at least 8h; 0: never.")
]
LeasesAfterOption = Annotated[
    str, typer.Option("--after", help="Time without a message, a renewal or a connection: 7d; 10s to 366d.")
]
QuotaPolicy = Annotated[QuotaOption, typer.Option("--policy", "-p", help="What happens above a limit.")]
RangesOption = Annotated[
    int,
    typer.Option(
        "--max",
        min=0,
        help="Number of acknowledged ranges; 0: deliver nothing new while a message is acked out of order.",
    ),
]
BytesOption = Annotated[
    str,
    typer.Option("--max", help="Bytes: 4M; at most 64M; 0: deliver nothing new while a message is acked out of order."),
]


# --- what users type --------------------------------------------------------------------------------------------------


def _switch(enable: Enable) -> Answer:
    return enable


def _ttl(ttl: TtlOption) -> Answer:
    return seconds_of(ttl, "ttl")


def _ranges(max_ranges: RangesOption) -> Answer:
    return max_ranges


def _state_bytes(max_bytes: BytesOption) -> Answer:
    return bytes_of(max_bytes, "max")


def _producers(max_producers: ProducersOption) -> Answer:
    return max_producers


def _names_after(after: NamesAfterOption) -> Answer:
    seconds, least = seconds_of(after, "after"), POLICY_MS_MIN // 1000
    if seconds and seconds < least:
        message = f"after: must be at least 8h ({least} seconds), or 0 for never, not {after}"
        raise InvalidArgument(message, field="after", limit=least)
    return seconds


def _leases_after(after: LeasesAfterOption) -> Answer:
    seconds, least, most = seconds_of(after, "after"), LEASE_MS_MIN // 1000, LEASE_MS_MAX // 1000
    if not least <= seconds <= most:
        message = f"after: must be 10s to 366d ({least} to {most} seconds), not {after}"
        raise InvalidArgument(message, field="after", limit=least if seconds < least else most)
    return seconds


def _retention(time: RetentionTime, size: RetentionSize) -> Answer:
    seconds, size_bytes = seconds_of(time, "time"), bytes_of(size, "size")
    for value, unit, field, name in ((seconds, 60, "time", "a minute"), (size_bytes, 1 << 20, "size", "1M")):
        if value > 0 and value % unit:
            raise InvalidArgument(f"{field}: the unit of retention is {name}", field=field, limit=unit)
    return {
        "retentionTimeInMinutes": seconds // 60 if seconds >= 0 else NO_LIMIT,
        "retentionSizeInMB": size_bytes >> 20 if size_bytes >= 0 else NO_LIMIT,
    }


def _quota(policy: QuotaPolicy, limit_size: QuotaSize = "-1", limit_time: QuotaTime = "-1") -> Answer:
    size_bytes, seconds = bytes_of(limit_size, "limit-size"), seconds_of(limit_time, "limit-time")
    for value, highest, field in (
        (size_bytes, QUOTA_BYTES_MAX, "limit-size"),
        (seconds, QUOTA_SECONDS_MAX, "limit-time"),
    ):
        if value != NO_LIMIT and not 1 <= value <= highest:
            raise InvalidArgument(f"{field}: must be 1 to {highest}, or -1 for no limit", field=field, limit=highest)
    return {"limitSize": size_bytes, "limitTime": seconds, "policy": policy.value}


# --- the commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Policy:
    """name: in the REST interface. words: in commands and their help. body: of the request that sets it; its parameters
    are the options of the command. noun: in the answer, if not the words. unit: of a value that is a number."""

    name: str
    words: str
    body: Callable[..., Answer]
    noun: str = ""
    unit: str = ""

    @property
    def is_switch(self) -> bool:
        return self.body is _switch


_POLICIES = (
    _Policy("deduplication", "deduplication", _switch),
    _Policy("autoTopicCreation", "auto topic creation", _switch),
    _Policy("dispatcherPauseOnAckStatePersistent", "dispatcher pause on ack state persistent", _switch),
    _Policy("retention", "retention", _retention),
    _Policy("messageTTL", "message ttl", _ttl, "message TTL", "seconds"),
    _Policy("backlogQuota", "backlog quota", _quota),
    _Policy("maxUnackedRangesToPersist", "max unacked ranges to persist", _ranges, "unacked ranges"),
    _Policy("ackStateBytesMax", "ack state bytes max", _state_bytes, "ack state bytes", "bytes"),
    _Policy(
        "assignedProducerExpiry", "assigned producer expiry", _names_after, "expiry of producers with assigned names",
        "seconds",
    ),
    _Policy(
        "chosenProducerExpiry", "chosen producer expiry", _names_after, "expiry of producers with chosen names",
        "seconds",
    ),
    _Policy("maxKnownProducersPerTopic", "max known producers per topic", _producers),
    _Policy("maxKnownProducersPerNamespace", "max known producers per namespace", _producers),
    _Policy("producerLeaseExpiry", "producer lease expiry", _leases_after, "expiry of leased producer ids", "seconds"),
)  # fmt: skip


def add_policies(app: typer.Typer, level: str, place: Place) -> None:
    """Add the commands for the cluster, a namespace or a topic. level: also the name of the argument; the cluster has
    none."""
    for policy in _POLICIES:
        row = POLICIES[policy.name]
        if last := row.topic_path if level == "topic" else row.path:
            _add(app, policy, level, partial(_path, place, last))


def _add(app: typer.Typer, policy: _Policy, level: str, path: Place) -> None:
    def set_policy(api: AdminApi, name: str = _CLUSTER, **options: object) -> Answer:
        body = policy.body(**options)
        api.post(path(api, name), body)
        said = ("on" if body else "off") if policy.is_switch else "set"
        return f"{policy.noun or policy.words} of {name}: {said}"

    def get_policy(api: AdminApi, name: str = _CLUSTER, applied: bool = False) -> Answer:
        answer = api.get(path(api, name), applied=True) if applied else api.get(path(api, name))
        shown: dict[str, object] = answer if isinstance(answer, dict) else {"set": answer}
        return {**shown, "unit": policy.unit} if policy.unit and answer is not None else shown

    def remove_policy(api: AdminApi, name: str = _CLUSTER) -> Answer:
        api.delete(path(api, name))
        decides = "the default applies" if level == "cluster" else "the next level decides"
        return f"{policy.words} of {name}: not set; {decides}"

    words, wins = f"{policy.words} of a {level}", "The most specific level that sets it wins."
    set_policy.__doc__ = f"Turn {words} on or off. {wins}" if policy.is_switch else f"Set the {words}. {wins}"
    get_policy.__doc__ = (
        f"Show whether {policy.words} is set on a {level}. With --applied, show the effective value and its source."
        if policy.is_switch
        else f"Show the {policy.words} that is set on a {level}. With --applied, the effective value and its source."
    )
    remove_policy.__doc__ = f"Unset {'' if policy.is_switch else 'the '}{words}. Then the next level decides."
    argument = typer.Argument(metavar=level.upper(), help=f"{level.capitalize()}.")
    name = [] if level == "cluster" else [option_parameter("name", Annotated[str, argument])]
    applied = option_parameter("applied", Applied, False)
    for verb, line, command, own in (
        ("set", "Turn it on or off." if policy.is_switch else "Set it.", set_policy, own_parameters(policy.body)),
        ("get", "Show it.", get_policy, [applied]),
        ("remove", "Unset it.", remove_policy, []),
    ):
        sign(command, [option_parameter("api", AdminApi), *name, *own])
        admin_command(app, f"{verb}-{policy.words.replace(' ', '-')}", panel=_PANEL, line=line)(command)


def _path(place: Place, last: str, api: AdminApi, name: str) -> str:
    return f"{place(api, name)}/{last}"
