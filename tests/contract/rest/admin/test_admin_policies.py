"""Tenants, namespaces and switches over REST: valid and invalid requests."""

from dataclasses import replace

import pytest

from oncelog.cli.admin.policies import TABLE
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import NamespaceName
from oncelog.core.policies.ack_state_limit import TOPIC_STATE_BYTES_MAX
from oncelog.metadata.restore.rights import closed
from tests.cluster.metadata.metadata_world import CLUSTER_ID
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving

pytestmark = pytest.mark.asyncio

CLUSTER = f"/admin/v2/clusters/{CLUSTER_ID}"
DEFAULT = "/admin/v2/namespaces/public/default"
SWITCHES = [
    (f"{CLUSTER}/deduplication", "cluster"),
    (f"{CLUSTER}/autoTopicCreation", "cluster"),
    (f"{DEFAULT}/deduplication", "namespace"),
    (f"{DEFAULT}/autoTopicCreation", "namespace"),
    (f"{FLIGHTS}/deduplicationEnabled", "topic"),
]
PAUSE = "dispatcherPauseOnAckStatePersistent"
OFF_BY_DEFAULT = (
    PAUSE, "pulsarNewInstanceFences", "pulsarAcceptStale", "pulsarAcceptOtherContent", "pulsarRefuseUnverified",
    "pulsarAckUndecodable", "kafkaCompact",
)  # fmt: skip
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 500}
QUOTA = {"limitSize": 1 << 30, "limitTime": 60, "policy": "producer_request_hold"}
#: (last element of the path, a value, its default, values that are refused, each with the field that is named)
VALUES: tuple[tuple[str, object, object, tuple[tuple[object, str], ...]], ...] = (
    (
        "retention",
        RETENTION,
        {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        (
            ({**RETENTION, "retentionTimeInMinutes": 0}, "retentionTimeInMinutes"),
            ({**RETENTION, "retentionSizeInMB": 0}, "retentionSizeInMB"),
            ({**RETENTION, "retentionSizeInMB": -2}, "retentionSizeInMB"),
            ({**RETENTION, "retentionSizeInMB": 2**31}, "retentionSizeInMB"),
            ({**RETENTION, "retentionSizeInMB": "1"}, "retentionSizeInMB"),
            ({"retentionTimeInMinutes": 1}, "retentionSizeInMB"),
            ({**RETENTION, "colour": 1}, "colour"),
        ),
    ),
    ("messageTTL", 3600, 0, ((-1, "body"), (2**31, "body"), ("1", "body"), (True, "body"), (1.5, "body"))),
    (
        "backlogQuota",
        QUOTA,
        {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"},
        (
            ({**QUOTA, "limitSize": 0}, "limitSize"),
            ({**QUOTA, "limitTime": 0}, "limitTime"),
            ({**QUOTA, "policy": "wait"}, "policy"),
            ({"limitSize": 1}, "policy"),
        ),
    ),
    ("maxUnackedRangesToPersist", 1000, 200_000, ((-1, "body"), ({}, "body"))),
    ("ackStateBytesMax", 1 << 20, 4 << 20, ((-1, "body"), ((64 << 20) + 1, "body"))),
    ("assignedProducerExpiry", 28_800, 604_800, ((-1, "body"), (28_799, "body"), (2**31, "body"), ("7d", "body"))),
    ("chosenProducerExpiry", 86_400, 0, ((-1, "body"), (1, "body"), (28_799, "body"))),
    ("maxKnownProducersPerTopic", 5, 1_000_000, ((-1, "body"), (2**31, "body"), ("5", "body"))),
    ("producerLeaseExpiry", 10, 604_800, ((0, "body"), (9, "body"), (366 * 86_400 + 1, "body"))),
)
NEITHER_TRUE_NOR_FALSE = (
    b'"true"', b"1", b"null", b"{}", b"[true]", b"", b"maybe", b"\xff\xfe", b"true false",
)  # fmt: skip


async def with_topic(admin: Admin) -> None:
    await admin.change("PUT", FLIGHTS)


async def test_tenants_are_listed_and_created_once() -> None:
    """A second creation is a conflict."""
    async with serving() as admin:
        assert await admin.get("/admin/v2/tenants") == ["public"]
        await admin.change("PUT", "/admin/v2/tenants/acme")
        assert await admin.get("/admin/v2/tenants") == ["acme", "public"]
        assert (await admin.refused("PUT", "/admin/v2/tenants/acme", 409, "conflict"))["field"] == "tenant"
        assert await admin.get("/admin/v2/namespaces/acme") == []
        await admin.refused("GET", "/admin/v2/namespaces/nobody", 404, "not_found")


async def test_namespace_is_created_shown_and_deleted() -> None:
    """With the given policies, and only in an existing tenant."""
    async with serving() as admin:
        path = "/admin/v2/namespaces/public/orders"
        await admin.refused("GET", path, 404, "namespace_not_found")
        await admin.change("PUT", path, json={"deduplication": False})
        expected = {"namespace": "public/orders", "deduplication": False, "auto_create_topics": None}
        assert await admin.get(path) == expected
        assert await admin.get("/admin/v2/namespaces/public") == ["public/default", "public/orders"]
        await admin.refused("PUT", path, 409, "conflict")
        await admin.change("DELETE", path)
        await admin.refused("DELETE", path, 404, "namespace_not_found")
        await admin.change("PUT", path)
        assert (await admin.get(path))["deduplication"] is None
        await admin.refused("PUT", "/admin/v2/namespaces/nobody/orders", 404, "not_found")


async def test_switch_is_set_read_and_unset() -> None:
    """Not set is null, not false. A value set here wins, and is shown with its source."""
    async with serving() as admin:
        await with_topic(admin)
        assert await admin.get("/admin/v2/clusters") == [CLUSTER_ID], "paths of the cluster's policies name it"
        for path, level in SWITCHES:
            assert await admin.get(path) is None
            assert await admin.get(path, params={"applied": "true"}) == {"value": True, "source": "default"}
            for value in (False, True):
                await admin.change("POST", path, json=value)
                assert await admin.get(path) is value
                assert await admin.get(path, params={"applied": "true"}) == {"value": value, "source": level}
            await admin.change("DELETE", path)
            await admin.change("DELETE", path)
            assert await admin.get(path) is None


async def test_limits_are_set_read_and_unset_at_three_levels() -> None:
    """With Pulsar's names and units, and the source of the effective value."""
    async with serving() as admin:
        await with_topic(admin)
        for last, value, default, _ in (*VALUES, *((switch, True, False, ()) for switch in OFF_BY_DEFAULT)):
            topic, applied = f"{FLIGHTS}/{last}", {"applied": "true"}
            assert await admin.get(topic, params=applied) == {"value": default, "source": "default"}
            for base, source in ((CLUSTER, "cluster"), (DEFAULT, "namespace"), (FLIGHTS, "topic")):
                path = f"{base}/{last}"
                assert await admin.get(path) is None
                await admin.change("POST", path, json=value)
                assert await admin.get(path) == value
                assert await admin.get(topic, params=applied) == {"value": value, "source": source}
            for base, source in ((FLIGHTS, "namespace"), (DEFAULT, "cluster"), (CLUSTER, "default")):
                await admin.change("DELETE", f"{base}/{last}")
                assert (await admin.get(topic, params=applied))["source"] == source


async def test_all_policies_of_a_topic_are_shown_with_their_sources() -> None:
    """The same as each of them by its own path, also where the levels differ."""
    async with serving() as admin:
        await with_topic(admin)
        names = [last for last, *_ in VALUES]
        for base, (last, value, *_) in zip((CLUSTER, DEFAULT, FLIGHTS), VALUES, strict=False):
            await admin.change("POST", f"{base}/{last}", json=value)
        shown = await admin.get(f"{FLIGHTS}/policies")
        assert {shown[name]["source"] for name in names} == {"cluster", "namespace", "topic", "default"}
        assert {*names, PAUSE, "deduplicationEnabled"} <= shown.keys()
        for name, applied in shown.items():
            assert await admin.get(f"{FLIGHTS}/{name}", params={"applied": "true"}) == applied
        await admin.refused("GET", f"{FLIGHTS}x/policies", 404, "topic_not_found")


async def test_all_policies_of_a_namespace_and_of_the_cluster_are_shown_with_their_sources() -> None:
    """The same as each of them by its own path. A level shows nothing of the levels below it."""
    async with serving() as admin:
        await with_topic(admin)
        for base, (last, value, *_) in zip((CLUSTER, DEFAULT, FLIGHTS), VALUES, strict=False):
            await admin.change("POST", f"{base}/{last}", json=value)
        for base, sources in ((DEFAULT, {"cluster", "namespace", "default"}), (CLUSTER, {"cluster", "default"})):
            shown = await admin.get(f"{base}/policies")
            assert {applied["source"] for applied in shown.values()} == sources
            assert {"deduplication", "autoTopicCreation", "maxKnownProducersPerNamespace"} <= shown.keys()
            for name, applied in shown.items():
                assert await admin.get(f"{base}/{name}", params={"applied": "true"}) == applied
        await admin.refused("GET", f"{DEFAULT}x/policies", 404, "namespace_not_found")


async def test_no_limit_is_a_value_that_overrides_the_level_behind() -> None:
    """A topic may be kept for ever, or without quota, in a namespace that has limits; keeping nothing is valid, too."""
    for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    async with serving() as admin:
        await with_topic(admin)
        await admin.change("POST", f"{DEFAULT}/retention", json={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        await admin.change("POST", f"{FLIGHTS}/retention", json=for_ever)
        applied = await admin.get(f"{FLIGHTS}/retention", params={"applied": "true"})
        assert applied == {"value": for_ever, "source": "topic"}


async def test_invalid_limit_is_refused_and_named() -> None:
    """Nothing is changed by it."""
    async with serving() as admin:
        await with_topic(admin)
        for last, _, _, refused in VALUES:
            for base in (CLUSTER, DEFAULT, FLIGHTS):
                path = f"{base}/{last}"
                for body, field in refused:
                    problem = await admin.refused("POST", path, 422, "invalid_argument", json=body)
                    assert problem["field"].split(".")[0] == field, (last, body, problem)
                    assert "Value error" not in problem["detail"]
                    if last.endswith("Expiry") and body in (1, 9, 28_799):
                        assert " seconds" in problem["detail"]
                assert await admin.get(path) is None


async def test_switch_of_a_partitioned_topic_is_shown_at_its_partitions() -> None:
    """With its source. The store of the policies decides which level is nearer."""
    async with serving() as admin:
        await admin.owner()
        await admin.change("PUT", f"{FLIGHTS}/partitions", json=2)
        await admin.replica.look_up("flights-partition-1", create=True)
        await admin.change("POST", f"{FLIGHTS}/deduplicationEnabled", json=False)
        part = f"{FLIGHTS}-partition-1/deduplicationEnabled"
        assert await admin.get(part) is None
        assert await admin.get(part, params={"applied": "true"}) == {"value": False, "source": "partitioned_topic"}


async def test_switch_and_applied_accept_true_and_false_only() -> None:
    """A string that looks like false must not switch anything on."""
    headers = {"content-type": "application/json"}
    async with serving() as admin:
        await with_topic(admin)
        for path, _ in SWITCHES:
            for body in NEITHER_TRUE_NOR_FALSE:
                problem = await admin.refused("POST", path, 422, "invalid_argument", content=body, headers=headers)
                assert problem["field"] == "body"
            problem = await admin.refused("GET", f"{path}?applied=banana", 422, "invalid_argument")
            assert problem["field"] == "applied"
            assert await admin.get(path) is None


async def test_switch_of_a_missing_object_is_not_found() -> None:
    """At each level, for each request."""
    async with serving() as admin:
        for path, code in (
            ("/admin/v2/clusters/another/deduplication", "not_found"),
            ("/admin/v2/clusters/another/autoTopicCreation", "not_found"),
            ("/admin/v2/namespaces/public/none/deduplication", "namespace_not_found"),
            ("/admin/v2/namespaces/none/none/autoTopicCreation", "namespace_not_found"),
            ("/admin/v2/persistent/public/default/none/deduplicationEnabled", "topic_not_found"),
        ):
            await admin.refused("GET", path, 404, code)
            await admin.refused("GET", f"{path}?applied=true", 404, code)
            await admin.refused("POST", path, 404, code, json=True)
            await admin.refused("DELETE", path, 404, code)


async def test_namespace_with_invalid_policies_is_not_created() -> None:
    """A misspelt policy must not be ignored."""
    bodies: tuple[object, ...] = (
        {"deduplication": "no"},
        {"deduplication": 1},
        {"colour": "red"},
        {"auto_create_topics": []},
        [],
        "x",
    )
    async with serving() as admin:
        path = "/admin/v2/namespaces/public/orders"
        for body in bodies:
            await admin.refused("PUT", path, 422, "invalid_argument", json=body)
        await admin.refused("GET", path, 404, "namespace_not_found")


@pytest.mark.hazard("revoked-right-returns")
async def test_role_that_is_revoked_while_rights_are_closed_gets_none_by_the_confirmation() -> None:
    """The operator sees a right that should be gone, and revokes it: there is no other way to open all but this one."""
    async with serving() as admin:
        coordination = admin.replica.coordination
        grants = {"ann": ("produce",), "bob": ("consume",), "eve": ("admin",)}
        namespace = NamespaceName("public", "default")
        await coordination.policies.change(namespace, lambda old: closed(replace(old, permissions=grants)))
        await admin.change("DELETE", f"{DEFAULT}/permissions/ann")
        await admin.change("POST", f"{DEFAULT}/permissions/eve", json=["consume"])
        await admin.change("DELETE", f"{DEFAULT}/permissions/eve")
        shown = await admin.get("/admin/v2/cluster/rights")
        assert [each["role"] for each in shown["closed"]] == ["bob"]
        assert (await admin.http.post("/admin/v2/cluster/rights/confirm")).status_code == 200
        assert await admin.get(f"{DEFAULT}/permissions") == {"bob": ["consume"]}


async def test_table_of_the_command_line_has_every_policy_and_its_default() -> None:
    """`oncelog admin policy --help` says what holds where nothing is set."""
    async with serving() as admin:
        paths = [
            path
            for path in (await admin.get("/openapi.json"))["paths"]
            if path.startswith("/admin/v2/clusters/{cluster}/")
        ]
        assert {path.rpartition("/")[2] for path in paths} - {"policies"} == {row.rest for row in TABLE.values()}
        for row in TABLE.values():
            applied = await admin.get(f"{CLUSTER}/{row.rest}", params={"applied": "true"})
            assert (row.form.shown(applied["value"]), applied["source"]) == (row.default, "default")
        assert TABLE["ack-state-bytes-max"].form.body("x", ["64M"]) == TOPIC_STATE_BYTES_MAX
        with pytest.raises(InvalidArgument):
            TABLE["ack-state-bytes-max"].form.body("x", [str(TOPIC_STATE_BYTES_MAX + 1)])
