"""The policies of one topic, as its owner follows them."""

from dataclasses import dataclass, field

from oncelog.core.policies.ack_state_limit import PausePolicy
from oncelog.core.policies.producer_caps import ProducerCaps
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes
from oncelog.core.policies.retention_rules import BacklogQuota, RetentionPolicy


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """ttl_ms: the age from which messages count as acknowledged; None: none. quota: None: none. lifetimes: of
    producers; None: not known yet, so nothing expires but leases. caps: None: not known yet, so nobody is refused."""

    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    ttl_ms: int | None = None
    quota: BacklogQuota | None = None
    pause: PausePolicy = field(default_factory=PausePolicy)
    lifetimes: ProducerLifetimes | None = None
    caps: ProducerCaps | None = None

    @property
    def keeps_everything(self) -> bool:
        """Whether nothing is deleted, expires or is limited."""
        return self.retention.for_ever and self.ttl_ms is None and self.quota is None

    @property
    def age_ms(self) -> int | None:
        """The lowest limit of age; None: ages do not matter."""
        ages = (self.ttl_ms, self.retention.time_ms, self.quota.age_ms_max if self.quota is not None else None)
        return min((age for age in ages if age is not None), default=None)
