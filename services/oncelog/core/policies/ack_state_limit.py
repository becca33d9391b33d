"""PIP-299: when new messages of a subscription are withheld because of its state of acknowledgements.

    delivering --over a limit, or acknowledgements cannot be written--> withheld
    withheld   --below 80 % of both limits, and they can be written | the policy is switched off--> delivering

Rules
- The durable fold alone is judged: when a topic is loaded, when the policy changes, and after each fold (hazard
  dispatch-paused-for-ever).
- The policy is for every type of subscription. While it is off, nothing is withheld.
- Only acknowledgements count, not delivery counts: acknowledging the messages in the holes always lowers them, down to
  nothing, and a state of nothing is below every limit, 0 included. So there is always a way out.
- With or without the policy, the ack state of a topic is full at a hard limit (hazard ack-state-at-its-limit).
Source: PIP-299. Pulsar withholds shared subscriptions alone, has no lower limit to resume at, and after a load does not
check before the first acknowledgement.
"""

from dataclasses import dataclass

from oncelog.core.acks.ack_state import SubscriptionsState, SubscriptionState

#: Pulsar's managedLedgerMaxUnackedRangesToPersist.
UNACKED_RANGES_MAX = 200_000
#: About 30 million messages in the worst case, where every second one is acknowledged.
ACK_STATE_BYTES_MAX = 4 * 1024 * 1024
#: The hard limit of all subscriptions of a topic together.
TOPIC_STATE_BYTES_MAX = 64 * 1024 * 1024
#: Delivery goes on below this part of both limits, in percent.
RESUME_PERCENT = 80


@dataclass(frozen=True, slots=True)
class PausePolicy:
    """enabled: dispatcher_pause_on_ack_state_persistent_enabled. unacked_ranges_max: max_unacked_ranges_to_persist, the
    acknowledged ranges above mark_delete. state_bytes_max: ack_state_bytes_max, what they take in a snapshot."""

    enabled: bool = False
    unacked_ranges_max: int = UNACKED_RANGES_MAX
    state_bytes_max: int = ACK_STATE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class AckStateLimit:
    """Judges the durable state by a policy. writable: whether acknowledgements can be made durable now. A change of
    either is another limit. topic_bytes_max: the hard limit of all subscriptions of the topic together."""

    policy: PausePolicy
    writable: bool = True
    topic_bytes_max: int = TOPIC_STATE_BYTES_MAX

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        """Why new messages are withheld; empty: they are not. paused: whether they are withheld now."""
        policy, acks = self.policy, state.acks
        if not policy.enabled:
            return ""
        if not self.writable:
            return "acknowledgements cannot be made durable"
        if not acks.range_count:
            return ""
        percent = RESUME_PERCENT if paused else 100
        # At the limit is allowed; 80 % of it is not yet below 80 %.
        if acks.range_count * 100 + paused > policy.unacked_ranges_max * percent:
            return f"{acks.range_count} acknowledged ranges, limit {policy.unacked_ranges_max}"
        if acks.state_bytes * 100 + paused > policy.state_bytes_max * percent:
            return f"{acks.state_bytes} bytes of ack state, limit {policy.state_bytes_max}"
        return ""

    def full(self, state: SubscriptionsState) -> bool:
        """Whether the ack state of the topic is at its hard limit, so that only what lowers it may be written."""
        return state.state_bytes >= self.topic_bytes_max
