"""Bodies of policies, with Pulsar's names and units, and what they mean.

Retention: -1 is no limit, and 0 and 0 keep nothing; 0 beside another value is refused, because it contradicts itself.
"""

from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from oncelog.core.errors import InvalidArgument
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN, POLICY_MS_MIN
from oncelog.core.policies.retention_rules import (
    QUOTA_BYTES_MAX,
    QUOTA_SECONDS_MAX,
    BacklogQuota,
    QuotaAction,
    RetentionPolicy,
)

T = TypeVar("T")
#: The highest number of a body, as in Pulsar.
NUMBER_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_MB = 1 << 20
_NO_LIMIT = -1


def name_lifetime(seconds: int) -> int:
    """Raises ValueError."""
    if seconds and seconds * 1000 < POLICY_MS_MIN:
        raise ValueError(f"must be at least {POLICY_MS_MIN // 1000} seconds, or 0 for never")
    return seconds


def lease_lifetime(seconds: int) -> int:
    """Raises ValueError."""
    if not LEASE_MS_MIN <= seconds * 1000 <= LEASE_MS_MAX:
        raise ValueError(f"must be {LEASE_MS_MIN // 1000} to {LEASE_MS_MAX // 1000} seconds")
    return seconds


class AppliedPolicy(BaseModel, Generic[T]):
    """The effective value of a policy, and the level that it comes from."""

    value: T
    source: str = Field(description="topic, partitioned_topic, namespace, cluster or default")


class RetentionBody(BaseModel):
    """How long acknowledged messages are kept. -1: no limit; both 0: they are not kept."""

    model_config = ConfigDict(extra="forbid")

    retentionTimeInMinutes: StrictInt = Field(  # noqa: N815 - Pulsar's name
        ge=_NO_LIMIT, le=NUMBER_MAX, description="-1: no limit"
    )
    retentionSizeInMB: StrictInt = Field(  # noqa: N815 - Pulsar's name
        ge=_NO_LIMIT, le=NUMBER_MAX, description="MiB of all messages that are kept; -1: no limit"
    )


class QuotaName(StrEnum):
    """Pulsar's names of what a backlog quota does."""

    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


class BacklogQuotaBody(BaseModel):
    """limitSize: bytes of messages that a subscription may leave unacknowledged; limitTime: seconds."""

    model_config = ConfigDict(extra="forbid")

    limitSize: StrictInt = Field(  # noqa: N815 - Pulsar's name
        default=_NO_LIMIT, ge=_NO_LIMIT, le=QUOTA_BYTES_MAX, description="Bytes of messages; -1: no limit"
    )
    limitTime: StrictInt = Field(  # noqa: N815 - Pulsar's name
        default=_NO_LIMIT,
        ge=_NO_LIMIT,
        le=QUOTA_SECONDS_MAX,
        description="Age in seconds of the oldest message; -1: no limit",
    )
    policy: QuotaName = Field(
        description="producer_request_hold: publishing waits; producer_exception: publishing fails; "
        "consumer_backlog_eviction: the oldest messages count as acknowledged"
    )


_ACTIONS = {
    QuotaName.HOLD: QuotaAction.HOLD,
    QuotaName.REFUSE: QuotaAction.REFUSE,
    QuotaName.EVICT: QuotaAction.EVICT,
}


def retention_of(body: RetentionBody) -> RetentionPolicy:
    """Raises InvalidArgument."""
    minutes, size_mb = body.retentionTimeInMinutes, body.retentionSizeInMB
    if (minutes == 0) != (size_mb == 0):
        field = "retentionTimeInMinutes" if minutes == 0 else "retentionSizeInMB"
        raise InvalidArgument(
            f"{field}: 0 keeps nothing, and the other limit says otherwise; use -1 for no limit, or 0 for both",
            field=field,
        )
    return RetentionPolicy(_scaled(minutes, _MINUTE_MS), _scaled(size_mb, _MB))


def shown_retention(policy: RetentionPolicy) -> RetentionBody:
    return RetentionBody(
        retentionTimeInMinutes=_unscaled(policy.time_ms, _MINUTE_MS),
        retentionSizeInMB=_unscaled(policy.size_bytes, _MB),
    )


def quota_of(body: BacklogQuotaBody) -> BacklogQuota:
    """Raises InvalidArgument."""
    for field, limit in (("limitSize", body.limitSize), ("limitTime", body.limitTime)):
        if limit == 0:
            raise InvalidArgument(f"{field}: must be 1 or more; use -1 for no limit", field=field, limit=1)
    return BacklogQuota(_ACTIONS[body.policy], _scaled(body.limitSize, 1), _scaled(body.limitTime, 1000))


def shown_quota(quota: BacklogQuota) -> BacklogQuotaBody:
    name = next(name for name, action in _ACTIONS.items() if action is quota.action)
    return BacklogQuotaBody(
        limitSize=_unscaled(quota.bytes_max, 1), limitTime=_unscaled(quota.age_ms_max, 1000), policy=name
    )


def _scaled(value: int, unit: int) -> int | None:
    return None if value == _NO_LIMIT else value * unit


def _unscaled(value: int | None, unit: int) -> int:
    return _NO_LIMIT if value is None else value // unit
