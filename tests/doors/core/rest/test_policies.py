"""Policies of Pulsar's clients: what they mean here, and how they are shown."""

from typing import Any

import pytest

from oncelog_doors.core.rest import policies
from oncelog_doors.core.rest.names import CLUSTERS
from oncelog_doors.core.rest.policies import QuotaType
from oncelog_doors.core.rest.refusals import Refused

REFUSE, HOLD = "producer_exception", "producer_request_hold"


def quota(size: int = -1, age: int = -1, action: str = REFUSE) -> dict[str, Any]:
    return {"limitSize": size, "limitTime": age, "policy": action}


def test_quota_replaces_that_of_its_own_type() -> None:
    present = quota(size=5, age=9)
    assert policies.quota_with(present, QuotaType.SIZE, quota(size=7)) == quota(size=7, age=9)
    assert policies.quota_with(present, QuotaType.AGE, quota(age=7)) == quota(size=5, age=7)
    # The limit of the other type in the same body says nothing.
    assert policies.quota_with(None, QuotaType.AGE, quota(size=3, age=7)) == quota(age=7)
    # The name of the size before Pulsar 2.8.
    assert policies.quota_with(None, QuotaType.SIZE, {"limit": 3, "policy": REFUSE}) == quota(size=3)
    assert policies.quota_with(None, QuotaType.AGE, {"limit": 3, "policy": REFUSE}) == quota()
    # Go's client writes numbers as texts, and Pulsar reads them.
    assert policies.quota_with(None, QuotaType.SIZE, {"limit": "3", "policy": REFUSE}) == quota(size=3)
    with pytest.raises(Refused, match="limit: must be a whole number, not 'three'"):
        policies.quota_with(None, QuotaType.SIZE, {"limit": "three", "policy": REFUSE})


def test_both_types_have_one_action() -> None:
    with pytest.raises(Refused, match="message_age has the action producer_exception") as refused:
        policies.quota_with(quota(age=9), QuotaType.SIZE, quota(size=7, action=HOLD))
    assert refused.value.status == 409
    assert policies.quota_with(quota(size=5), QuotaType.SIZE, quota(size=7, action=HOLD)) == quota(7, action=HOLD)


def test_policy_ends_with_the_last_quota() -> None:
    assert policies.quota_without(quota(size=5, age=9), QuotaType.SIZE) == quota(age=9)
    assert policies.quota_without(quota(size=5), QuotaType.SIZE) is None
    assert policies.quota_without(quota(size=5), QuotaType.AGE) == quota(size=5)
    assert policies.quota_without(None, QuotaType.AGE) is None


def test_quotas_are_shown_by_type() -> None:
    assert policies.quota_map(None) == {}
    assert policies.quota_map(quota(size=5, age=9)) == {
        "destination_storage": {"limit": 5, "limitSize": 5, "limitTime": -1, "policy": REFUSE},
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 9, "policy": REFUSE},
    }
    assert [*policies.quota_map(quota(age=9))] == ["message_age"]


def test_quota_has_a_known_type_and_action() -> None:
    assert policies.quota_type(None) is QuotaType.SIZE
    with pytest.raises(Refused, match="backlogQuotaType: 'x' is neither"):
        policies.quota_type("x")
    with pytest.raises(Refused, match="policy: 'x' is none of"):
        policies.quota_with(None, QuotaType.SIZE, quota(action="x"))
    with pytest.raises(Refused, match="policy: this field is required"):
        policies.quota_with(None, QuotaType.SIZE, {"limitSize": 3})


@pytest.mark.parametrize(
    ("present", "granted", "after"),
    [
        (None, ["produce"], ["produce"]),
        (["consume"], ["produce", "produce"], ["produce"]),
        (["admin", "consume"], ["produce"], ["admin", "produce"]),
    ],
)
def test_grant_replaces_all_but_the_right_to_administer(
    present: list[str] | None, granted: list[str], after: list[str]
) -> None:
    assert policies.rights_with(present, granted) == after


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        (["functions"], "actions: 'functions' is not offered here"),
        (["admin"], "actions: 'admin' is not offered here"),
        ([], "actions: name at least one"),
        ("produce", "actions: must be a list"),
        ([1], "actions.0: must be a text, not 1"),
        (None, "actions: must be a list, not None"),
    ],
)
def test_actions_that_cannot_be_granted(actions: object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        policies.rights_with(None, actions)
    assert refused.value.reason.startswith(reason)


def test_right_to_administer_is_not_shown() -> None:
    """Pulsar's tools fail on a name that they do not know."""
    assert policies.shown_rights({"ops": ["admin"], "shop": ["consume", "produce"]}) == {
        "ops": [],
        "shop": ["consume", "produce"],
    }


def test_new_namespace_takes_what_has_a_meaning() -> None:
    assert policies.new_namespace(None, CLUSTERS) == {}
    body = {
        "replication_clusters": ["standalone"],
        "bundles": {"numBundles": 4},
        "deduplicationEnabled": False,
        "autoTopicCreationOverride": {"allowAutoTopicCreation": False, "topicType": "non-partitioned"},
        "offload_threshold": None,
    }
    assert policies.new_namespace(body, CLUSTERS) == {"deduplication": False, "auto_create_topics": False}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"dedup": True}, "dedup: unknown field"),
        ({"x" * 100: True}, f"{'x' * 60}: unknown field"),
        ({"encryption_required": True}, "encryption_required: True is not offered here"),
        ({"replication_clusters": ["east"]}, "replication_clusters: there is no cluster 'east'"),
        ({"deduplicationEnabled": "yes"}, "deduplicationEnabled: must be true or false, not 'yes'"),
        (["x"], "the body must be an object with"),
        ({"topicDispatchRate": {"east": {"dispatchThrottlingRateInMsg": 1}}}, "topicDispatchRate: "),
    ],
)
def test_namespace_that_asks_for_more_is_refused(body: object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        policies.new_namespace(body, CLUSTERS)
    assert (refused.value.status, refused.value.reason[: len(reason)]) == (400, reason)


def test_tenant_has_a_name_only() -> None:
    policies.check_tenant(None, CLUSTERS)
    policies.check_tenant({"adminRoles": [""], "allowedClusters": ["standalone", ""]}, CLUSTERS)
    for body, field in (({"adminRoles": ["x"]}, "adminRoles"), ({"allowedClusters": ["east"]}, "allowedClusters")):
        with pytest.raises(Refused, match=f"{field}: "):
            policies.check_tenant(body, CLUSTERS)


def test_namespace_shows_the_policies_that_are_set_on_it() -> None:
    values: dict[str, dict[str, Any]] = {
        "deduplication": {"value": True, "source": "cluster"},
        "retention": {"value": {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}, "source": "namespace"},
        "message_ttl_s": {"value": 60, "source": "namespace"},
        "backlog_quota": {"value": quota(size=5), "source": "namespace"},
        "auto_create_topics": {"value": False, "source": "namespace"},
        "dispatcher_pause_on_ack_state_persistent_enabled": {"value": True, "source": "namespace"},
    }
    found = policies.shown_namespace(values, {"ops": ["admin", "produce"]})
    assert "deduplicationEnabled" not in found
    assert found["retention_policies"] == {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
    assert found["message_ttl_in_seconds"] == 60
    assert [*found["backlog_quota_map"]] == ["destination_storage"]
    assert found["autoTopicCreationOverride"]["allowAutoTopicCreation"] is False
    assert found["dispatcherPauseOnAckStatePersistentEnabled"] is True
    assert found["auth_policies"]["namespace_auth"] == {"ops": ["produce"]}
    own = policies.shown_namespace({"deduplication": {"value": False, "source": "namespace"}}, {})
    assert own["deduplicationEnabled"] is False


def test_partitioned_topic_has_a_count() -> None:
    assert policies.check_count(3) == policies.check_count({"partitions": 3, "deleted": False, "properties": {}}) == 3
    for body, reason in ((True, "partitions: must be a whole number"), ({"properties": {}}, "partitions: this field")):
        with pytest.raises(Refused, match=reason):
            policies.check_count(body)
