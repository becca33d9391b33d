"""The state of subscriptions that an owner reports, against the fold of the ack log."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.digest import state_digest
from oncelog.core.ids import BEFORE_ALL, Position
from oncelog.verify.range_summary import Finding

RULE = "subscriptions"


@dataclass(slots=True)
class SubscriptionsComparison:
    """count: subscriptions that the owner reports, of which `equal` are those of the chain. position: of the ack log.
    unchecked: why they were not compared; empty: they were."""

    position: Position = BEFORE_ALL
    count: int = 0
    equal: int = 0
    findings: list[Finding] = field(default_factory=list)
    unchecked: str = ""


def compare_subscriptions(fold: SubscriptionsState, reported: Mapping[str, str]) -> SubscriptionsComparison:
    """fold: of the ack log, up to the position of the report. reported: {name: digest}."""
    compared = SubscriptionsComparison(fold.position, len(reported))
    known = {each.name: each for each in fold.subscriptions.values()}
    for name in sorted(known.keys() | reported.keys()):
        state, digest = known.get(name), reported.get(name)
        if state is None:
            text = f"the owner has subscription {name}, which the ack log does not have"
        elif digest is None:
            text = f"the ack log has subscription {name}, which the owner does not have"
        elif digest != state_digest(state):
            text = (
                f"the owner's state of subscription {name} is not the fold of the ack log up to {fold.position}: "
                f"there its first unacknowledged message is {state.acks.mark_delete}, {state.acks.acked_count} above "
                f"it are acknowledged, and its seek epoch is {state.seek_epoch}"
            )
        else:
            compared.equal += 1
            continue
        compared.findings.append(Finding(RULE, None, text))
    return compared
