"""Commands for policies with limits: retention, time to live, backlog quota, and the limits of the ack state.

The same three commands at each level: set, get, remove. Durations and sizes are typed with units: 30m, 7d, 500M, 10G.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.switches import POLICIES_PANEL, Applied, cluster_place
from oncelog.core.errors import InvalidArgument
from oncelog.core.policies.retention_rules import QUOTA_BYTES_MAX, QUOTA_SECONDS_MAX

#: Returns the path of an object, from the name that the user typed.
Place = Callable[[AdminApi, str], str]
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NO_LIMIT = -1


class QuotaOption(StrEnum):
    """Pulsar's names of what a backlog quota does."""

    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


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


def add_policies(app: typer.Typer, level: str, place: Place) -> None:
    """Add the commands for a namespace or topic. level: name of the argument."""
    Name = Annotated[str, typer.Argument(metavar=level.upper(), help=f"{level.capitalize()}.")]  # noqa: N806

    def set_retention(api: AdminApi, name: Name, time: RetentionTime, size: RetentionSize) -> Answer:
        return _set(api, f"{place(api, name)}/retention", _retention(time, size), f"retention of {name}")

    def set_ttl(api: AdminApi, name: Name, ttl: TtlOption) -> Answer:
        return _set(api, f"{place(api, name)}/messageTTL", _seconds(ttl, "ttl"), f"message TTL of {name}")

    def set_quota(
        api: AdminApi, name: Name, policy: QuotaPolicy, limit_size: QuotaSize = "-1", limit_time: QuotaTime = "-1"
    ) -> Answer:
        body = _quota(policy, limit_size, limit_time)
        return _set(api, f"{place(api, name)}/backlogQuota", body, f"backlog quota of {name}")

    def set_ranges(api: AdminApi, name: Name, max_ranges: RangesOption) -> Answer:
        return _set(api, f"{place(api, name)}/maxUnackedRangesToPersist", max_ranges, f"unacked ranges of {name}")

    def set_bytes(api: AdminApi, name: Name, max_bytes: BytesOption) -> Answer:
        return _set(api, f"{place(api, name)}/ackStateBytesMax", _size(max_bytes, "max"), f"ack state bytes of {name}")

    for command, last, setter in _commands(set_retention, set_ttl, set_quota, set_ranges, set_bytes):
        _add(app, command, level, setter)
        _add_reading(app, command, level, Name, partial(_path, place, last))


def add_cluster_policies(app: typer.Typer) -> None:
    """Add the same commands for the cluster."""

    def set_retention(api: AdminApi, time: RetentionTime, size: RetentionSize) -> Answer:
        return _set(api, cluster_place(api, "retention"), _retention(time, size), "retention of the cluster")

    def set_ttl(api: AdminApi, ttl: TtlOption) -> Answer:
        return _set(api, cluster_place(api, "messageTTL"), _seconds(ttl, "ttl"), "message TTL of the cluster")

    def set_quota(
        api: AdminApi, policy: QuotaPolicy, limit_size: QuotaSize = "-1", limit_time: QuotaTime = "-1"
    ) -> Answer:
        body = _quota(policy, limit_size, limit_time)
        return _set(api, cluster_place(api, "backlogQuota"), body, "backlog quota of the cluster")

    def set_ranges(api: AdminApi, max_ranges: RangesOption) -> Answer:
        return _set(api, cluster_place(api, "maxUnackedRangesToPersist"), max_ranges, "unacked ranges of the cluster")

    def set_bytes(api: AdminApi, max_bytes: BytesOption) -> Answer:
        body = _size(max_bytes, "max")
        return _set(api, cluster_place(api, "ackStateBytesMax"), body, "ack state bytes of the cluster")

    for command, last, setter in _commands(set_retention, set_ttl, set_quota, set_ranges, set_bytes):
        _add(app, command, "cluster", setter)
        _add_cluster_reading(app, command, last)


def _commands(*setters: Callable[..., Answer]) -> list[tuple[str, str, Callable[..., Answer]]]:
    """(last part of the command's name, last element of the path, the command that sets)."""
    names = (
        ("retention", "retention"),
        ("message-ttl", "messageTTL"),
        ("backlog-quota", "backlogQuota"),
        ("max-unacked-ranges-to-persist", "maxUnackedRangesToPersist"),
        ("ack-state-bytes-max", "ackStateBytesMax"),
    )
    return [(command, last, setter) for (command, last), setter in zip(names, setters, strict=True)]


def _add(app: typer.Typer, command: str, level: str, setter: Callable[..., Answer]) -> None:
    words = command.replace("-", " ")
    setter.__doc__ = f"Set the {words} of a {level}. The most specific level that sets it wins."
    admin_command(app, f"set-{command}", panel=POLICIES_PANEL, line="Set it.")(setter)


def _add_reading(app: typer.Typer, command: str, level: str, Name: object, place: Place) -> None:  # noqa: N803
    """Add get-COMMAND and remove-COMMAND. Name: the type of the argument."""

    def get(api: AdminApi, name: str, applied: Applied = False) -> Answer:
        return _read(api, place(api, name), applied)

    def remove(api: AdminApi, name: str) -> Answer:
        api.delete(place(api, name))
        return f"{command.replace('-', ' ')} of {name}: not set; the next level decides"

    for made in (get, remove):
        made.__annotations__["name"] = Name
    _describe(app, command, level, get, remove)


def _add_cluster_reading(app: typer.Typer, command: str, last: str) -> None:
    def get(api: AdminApi, applied: Applied = False) -> Answer:
        return _read(api, cluster_place(api, last), applied)

    def remove(api: AdminApi) -> Answer:
        api.delete(cluster_place(api, last))
        return f"{command.replace('-', ' ')} of the cluster: not set; the default applies"

    _describe(app, command, "cluster", get, remove)


def _describe(
    app: typer.Typer, command: str, level: str, get: Callable[..., Answer], remove: Callable[..., Answer]
) -> None:
    words = command.replace("-", " ")
    get.__doc__ = f"Show the {words} that is set on a {level}. With --applied, the effective value and its source."
    remove.__doc__ = f"Unset the {words} of a {level}. Then the next level decides."
    admin_command(app, f"get-{command}", panel=POLICIES_PANEL, line="Show it.")(get)
    admin_command(app, f"remove-{command}", panel=POLICIES_PANEL, line="Unset it.")(remove)


def _path(place: Place, last: str, api: AdminApi, name: str) -> str:
    return f"{place(api, name)}/{last}"


def _set(api: AdminApi, path: str, body: Answer, what: str) -> Answer:
    api.post(path, body)
    return f"{what}: set"


def _read(api: AdminApi, path: str, applied: bool) -> Answer:
    answer = api.get(path, applied=True) if applied else api.get(path)
    return answer if isinstance(answer, dict) else {"set": answer}


# --- what users type --------------------------------------------------------------------------------------------------


def _retention(time: str, size: str) -> Answer:
    seconds, size_bytes = _seconds(time, "time"), _size(size, "size")
    for value, unit, field, name in ((seconds, 60, "time", "a minute"), (size_bytes, 1 << 20, "size", "1M")):
        if value > 0 and value % unit:
            raise InvalidArgument(f"{field}: the unit of retention is {name}", field=field, limit=unit)
    return {
        "retentionTimeInMinutes": seconds // 60 if seconds >= 0 else _NO_LIMIT,
        "retentionSizeInMB": size_bytes >> 20 if size_bytes >= 0 else _NO_LIMIT,
    }


def _quota(policy: QuotaOption, limit_size: str, limit_time: str) -> Answer:
    size_bytes, seconds = _size(limit_size, "limit-size"), _seconds(limit_time, "limit-time")
    for value, highest, field in (
        (size_bytes, QUOTA_BYTES_MAX, "limit-size"),
        (seconds, QUOTA_SECONDS_MAX, "limit-time"),
    ):
        if value != _NO_LIMIT and not 1 <= value <= highest:
            raise InvalidArgument(f"{field}: must be 1 to {highest}, or -1 for no limit", field=field, limit=highest)
    return {"limitSize": size_bytes, "limitTime": seconds, "policy": policy.value}


def _seconds(typed: str, field: str) -> int:
    return _number(typed, _SECONDS, field, "30m, 12h, 7d")


def _size(typed: str, field: str) -> int:
    return _number(typed, _BYTES, field, "500M, 10G")


def _number(typed: str, units: dict[str, int], field: str, examples: str) -> int:
    """The number that was typed; -1: no limit. Raises InvalidArgument."""
    if typed == "-1":
        return _NO_LIMIT
    match = re.fullmatch(r"(\d{1,18})([A-Za-z]?)", typed)
    if match is None or match[2] not in units:
        raise InvalidArgument(f"{field}: {typed!r} is no number with a unit, such as {examples}, or -1", field=field)
    return int(match[1]) * units[match[2]]
