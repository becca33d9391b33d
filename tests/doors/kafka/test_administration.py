"""Requests of administrators: what is asked of the cluster, with whose rights, and how outcomes are answered."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from oncelog.core.access import Right
from oncelog.core.errors import LimitReached
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.topic_configs import FOR_EVER, AppliedConfigs, OwnConfigs, Retention, Source
from oncelog_doors.kafka.administration import ADMINISTRATION
from oncelog_doors.kafka.administration_ports import KnownProducer
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.changes import TIMEOUT_MS_MIN
from oncelog_doors.kafka.codec import Body
from tests.doors.kafka.fake_administration import UNAVAILABLE
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import RawClient, kafka_world, raw_client

pytestmark = pytest.mark.asyncio

TOPIC, BROKER = 2, 4
ORDERS = "public/default/orders"
HOUR = Retention(60, -1)
INT32_MIN = -(2**31)


async def asked(cluster: FakeCluster, api: str, body: Body, version: int | None = None) -> Body:
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        return await client.ask(api, KNOWN[api].last if version is None else version, body)


def new_topic(name: str, count: int = 1, **more: Any) -> Body:
    return {"name": name, "num_partitions": count, "replication_factor": 3, "assignments": [], "configs": []} | more


def configs(**values: str | None) -> list[Body]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


async def created(cluster: FakeCluster, *topics: Body, **more: Any) -> dict[str, tuple[int, Any]]:
    """{name: (code, sentence)}."""
    answer = await asked(cluster, "CreateTopics", {"topics": list(topics), "timeout_ms": 30_000} | more)
    return {each["name"]: (each["error_code"], each["error_message"]) for each in answer["topics"]}


def outcome(answer: Body, of: str) -> tuple[int, Any]:
    [one] = answer[of]
    return one["error_code"], one["error_message"]


# --- topics -----------------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_with_partitions_and_configurations() -> None:
    cluster = FakeCluster()
    cluster.partitions_default = 4
    topics = (
        new_topic("default", -1),
        new_topic("six", 6),
        new_topic("tenant/space/far"),
        new_topic("assigned", -1, replication_factor=-1, assignments=[{"partition_index": n} for n in (1, 0)]),
        new_topic("kept", configs=configs(retention_ms="3600000")),
        new_topic("connect-offsets", configs=configs(cleanup_policy="compact")),
    )
    assert await created(cluster, *topics) == {each["name"]: (0, None) for each in topics}
    own = {"default": 4, "six": 6, "assigned": 2, "kept": 1, "connect-offsets": 1}
    expected = {f"public/default/{name}": count for name, count in own.items()}
    assert cluster.partition_counts == expected | {ORDERS: 0, "tenant/space/far": 1}
    assert cluster.configs == {
        "public/default/kept": OwnConfigs(HOUR),
        "public/default/connect-offsets": OwnConfigs(FOR_EVER, True),
    }


@pytest.mark.parametrize("is_trial", [False, True])
async def test_what_cannot_be_created_is_refused_and_nothing_is_created(is_trial: bool) -> None:
    cluster = FakeCluster()
    refused: Sequence[tuple[Body, ErrorCode, str]] = (
        (new_topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        (new_topic(""), ErrorCode.INVALID_TOPIC, "topic is empty"),
        (new_topic("a b"), ErrorCode.INVALID_TOPIC, "has a character outside"),
        (new_topic("."), ErrorCode.INVALID_TOPIC, "may not be"),
        (new_topic("x" * 300), ErrorCode.INVALID_TOPIC, "has 300 characters, at most 255"),
        (new_topic("a/b/c/d"), ErrorCode.INVALID_TOPIC, "must be"),
        (new_topic("x-partition-3"), ErrorCode.INVALID_TOPIC, "is a partition"),
        (new_topic("__oncelog_x"), ErrorCode.INVALID_TOPIC, "belong to the doors"),
        (new_topic("none", 0), ErrorCode.INVALID_PARTITIONS, "0 partitions are wanted, and a topic has 1 to 1000"),
        (new_topic("less", -7), ErrorCode.INVALID_PARTITIONS, "-7 partitions"),
        (new_topic("many", 100_001), ErrorCode.INVALID_PARTITIONS, "100001 partitions"),
        (new_topic("copies", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "factor is 0"),
        (new_topic("odd", configs=configs(no_such="1")), ErrorCode.INVALID_CONFIG, "no.such: a topic has no such"),
        (new_topic("two", configs=configs(retention_ms="1") * 2), ErrorCode.INVALID_REQUEST, "named twice"),
    )
    found = await created(cluster, *(topic for topic, _, _ in refused), validate_only=is_trial)
    assert {name: code for name, (code, _) in found.items()} == {topic["name"]: code for topic, code, _ in refused}
    for topic, _, sentence in refused:
        assert sentence in found[topic["name"]][1]
    assert cluster.partition_counts == {ORDERS: 0}


async def test_a_trial_creates_nothing() -> None:
    cluster = FakeCluster()
    topic = new_topic("new", 3, configs=configs(retention_ms="3600000"))
    assert await created(cluster, topic, validate_only=True) == {"new": (0, None)}
    assert cluster.partition_counts == {ORDERS: 0}
    assert not cluster.configs


async def test_a_topic_that_is_named_twice_is_refused_once_and_the_others_are_created() -> None:
    """Also in two forms."""
    cluster = FakeCluster()
    found = await created(cluster, new_topic("a"), new_topic("b"), new_topic("a"), new_topic("public/default/b"))
    assert {name: code for name, (code, _) in found.items()} == dict.fromkeys(
        ("a", "b", "public/default/b"), ErrorCode.INVALID_REQUEST
    )
    assert "topic public/default/a is named 2 times" in found["a"][1]
    assert await created(cluster, new_topic("a"), new_topic("c"), new_topic("c")) == {
        "a": (0, None), "c": (ErrorCode.INVALID_REQUEST, "topic public/default/c is named 2 times")
    }  # fmt: skip


async def test_configurations_that_were_not_set_are_reported_with_what_was_done() -> None:
    cluster = FakeCluster()
    cluster.config_error = UNAVAILABLE
    [(code, sentence)] = (await created(cluster, new_topic("new", configs=configs(retention_ms="1")))).values()
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert sentence.startswith("the topic was created, and its configurations were not set: no service answers")


async def test_nothing_is_created_whose_configurations_the_role_may_not_set() -> None:
    cluster = FakeCluster()
    cluster.no_admins = {None}
    [(code, _)] = (await created(cluster, new_topic("new", configs=configs(retention_ms="1")))).values()
    assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cluster.partition_counts == {ORDERS: 0}


async def test_a_limit_of_the_cluster_is_a_violated_policy() -> None:
    cluster = FakeCluster()
    cluster.admin_error = LimitReached("the cluster has too many topics")
    assert await created(cluster, new_topic("new")) == {
        "new": (ErrorCode.POLICY_VIOLATION, "the cluster has too many topics")
    }


async def test_a_topic_gets_more_partitions_and_never_fewer() -> None:
    cluster = FakeCluster()
    cluster.partition_counts["public/default/split"] = 3

    async def grown(name: str, count: int, **more: Any) -> tuple[int, Any]:
        body = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 30_000} | more
        return outcome(await asked(cluster, "CreatePartitions", body), "results")

    assert await grown("split", 5, validate_only=True) == (0, None)
    assert not cluster.growths
    assert await grown("split", 5) == (0, None)
    assert cluster.growths == [("public/default/split", 3, 5)]
    for name, count, code in (
        ("split", 4, ErrorCode.INVALID_PARTITIONS),
        ("split", 100_001, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2, ErrorCode.INVALID_PARTITIONS),
        ("missing", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 2, ErrorCode.INVALID_TOPIC),
    ):
        found, sentence = await grown(name, count)
        assert (found, bool(sentence)) == (code, True), name
    assert len(cluster.growths) == 1


async def test_the_same_number_of_partitions_completes_a_growth_and_is_refused() -> None:
    """The request before had no answer, so that the growth may not be complete."""
    cluster = FakeCluster()
    cluster.partition_counts["public/default/split"] = 3
    for is_trial, growths in ((True, []), (False, [("public/default/split", 3, 3)])):
        topics = [{"name": "split", "count": 3, "assignments": None}]
        body = {"topics": topics, "timeout_ms": 30_000, "validate_only": is_trial}
        answer = await asked(cluster, "CreatePartitions", body)
        assert outcome(answer, "results")[0] == ErrorCode.INVALID_PARTITIONS
        assert cluster.growths == growths


async def test_a_deletion_is_answered_when_it_is_complete() -> None:
    cluster = FakeCluster()
    cluster.deletions.clear()
    body = {"topic_names": ["orders", "missing"], "timeout_ms": 30_000}
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        client.send("DeleteTopics", 3, body)
        client.send("ApiVersions", 0, {})
        while len(cluster.administered_with) < 2:
            await client_turn(world.port)
        assert ORDERS in cluster.partition_counts
        cluster.deletions.set()
        _, answer = await client.read("DeleteTopics", 3)
    codes = {each["name"]: each["error_code"] for each in answer["responses"]}
    assert codes == {"orders": 0, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not cluster.partition_counts


async def client_turn(port: int) -> None:
    """Another client is answered meanwhile."""
    async with raw_client(port) as client:
        await client.ask("ApiVersions", 0, {})


async def test_a_change_that_takes_too_long_is_answered_as_unknown() -> None:
    """The client asks for no time at all: it gets a second."""
    cluster = FakeCluster()
    cluster.deletions.clear()
    answer = await asked(cluster, "DeleteTopics", {"topic_names": ["orders"], "timeout_ms": 0})
    assert answer["responses"][0]["error_code"] == ErrorCode.REQUEST_TIMED_OUT
    assert TIMEOUT_MS_MIN == 1_000


async def test_records_are_deleted_and_the_true_first_offset_is_answered() -> None:
    """Whole ledgers: in the fake, entries."""
    cluster = FakeCluster()
    log = cluster.log("orders")
    for _ in range(3):
        log.append(b"", 10)

    async def trimmed(index: int, offset: int, name: str = "orders") -> tuple[int, int]:
        parts = [{"partition_index": index, "offset": offset}]
        body = {"topics": [{"name": name, "partitions": parts}], "timeout_ms": 30_000}
        [part] = (await asked(cluster, "DeleteRecords", body))["topics"][0]["partitions"]
        return part["error_code"], part["low_watermark"]

    assert await trimmed(0, 15) == (0, 10)
    assert await trimmed(0, 20) == (0, 20)
    assert await trimmed(0, 31) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await trimmed(0, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await trimmed(1, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await trimmed(0, 0, "missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert log.first == 20
    assert await trimmed(0, -1) == (0, 30)


# --- configurations ---------------------------------------------------------------------------------------------------


async def described(
    cluster: FakeCluster, kind: int, name: str, keys: Any = None, version: int = 3, **more: bool
) -> Body:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    [found] = (await asked(cluster, "DescribeConfigs", {"resources": [resource]} | more, version))["results"]
    assert (found["resource_type"], found["resource_name"]) == (kind, name)
    return found  # type: ignore[no-any-return]


async def test_configurations_of_a_topic_are_shown_with_their_sources() -> None:
    cluster = FakeCluster()
    cluster.configs_of_namespace = AppliedConfigs(HOUR, Source.DEFAULT_OF_CLUSTER)
    found = await described(cluster, TOPIC, "orders")
    by_name = {each["name"]: each for each in found["configs"]}
    assert by_name["retention.ms"]["value"] == "3600000"
    assert by_name["retention.ms"]["config_source"] == Source.DEFAULT_OF_CLUSTER
    assert by_name["cleanup.policy"]["value"] == "delete"
    assert by_name["max.message.bytes"]["read_only"]
    assert not any(each["synonyms"] for each in found["configs"])
    [with_synonyms] = (await described(cluster, TOPIC, "orders", ["retention.ms"], include_synonyms=True))["configs"]
    assert with_synonyms["synonyms"] == [{"name": "retention.ms", "value": "3600000", "source": 3}]
    asked_for = await described(cluster, TOPIC, "orders", ["retention.ms", "no.such"], version=0)
    assert [(each["name"], each["is_default"]) for each in asked_for["configs"]] == [("retention.ms", False)]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (8, "0", ErrorCode.INVALID_REQUEST),
        (-128, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_without_configurations_are_refused(kind: int, name: str, code: ErrorCode) -> None:
    for api, of in (("DescribeConfigs", "results"), ("AlterConfigs", "responses")):
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": []}
        found, sentence = outcome(await asked(FakeCluster(), api, {"resources": [resource]}), of)
        assert (found, bool(sentence)) == (code, True)


async def test_the_broker_is_shown_and_cannot_be_altered() -> None:
    cluster = FakeCluster()
    assert {each["name"] for each in (await described(cluster, BROKER, "0"))["configs"]} >= {"delete.topic.enable"}
    assert (await described(cluster, BROKER, ""))["configs"] == []
    resource = {"resource_type": BROKER, "resource_name": "0", "configs": configs(num_partitions="3")}
    code, sentence = outcome(await asked(cluster, "AlterConfigs", {"resources": [resource]}), "responses")
    assert code == ErrorCode.INVALID_REQUEST
    assert "cannot be altered" in sentence


async def altered(cluster: FakeCluster, values: Mapping[str, str | None], **more: Any) -> tuple[int, Any]:
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs(**values)}
    return outcome(await asked(cluster, "AlterConfigs", {"resources": [resource]} | more), "responses")


async def test_configurations_are_replaced() -> None:
    cluster = FakeCluster()
    assert await altered(cluster, {"retention_ms": "3600000"}, validate_only=True) == (0, None)
    assert not cluster.configs
    assert await altered(cluster, {"retention_ms": "3600000"}) == (0, None)
    assert cluster.configs == {ORDERS: OwnConfigs(HOUR)}
    assert (await altered(cluster, {"retention_ms": "0"}))[0] == ErrorCode.INVALID_CONFIG
    assert (await altered(cluster, {"retention_ms": "0"}, validate_only=True))[0] == ErrorCode.INVALID_CONFIG
    assert cluster.configs == {ORDERS: OwnConfigs(HOUR)}
    assert await altered(cluster, {"cleanup_policy": "compact"}) == (0, None)
    assert cluster.configs == {ORDERS: OwnConfigs(FOR_EVER, True)}
    assert await altered(cluster, {}) == (0, None)
    assert cluster.configs == {ORDERS: OwnConfigs()}


def step(name: str, operation: int, value: str | None) -> Body:
    return {"name": name, "config_operation": operation, "value": value}


async def stepped(cluster: FakeCluster, *steps: Body) -> tuple[int, Any]:
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": list(steps)}
    return outcome(await asked(cluster, "IncrementalAlterConfigs", {"resources": [resource]}), "responses")


async def test_single_configurations_are_set_and_deleted() -> None:
    cluster = FakeCluster()
    assert await stepped(cluster, step("retention.ms", 0, "3600000")) == (0, None)
    assert await stepped(cluster, step("retention.bytes", 0, "1048576")) == (0, None)
    assert cluster.configs == {ORDERS: OwnConfigs(Retention(60, 1))}
    assert await stepped(cluster, step("retention.ms", 1, None)) == (0, None)
    assert cluster.configs == {ORDERS: OwnConfigs(Retention(-1, 1))}
    for refused, code in (
        (step("cleanup.policy", 2, "compact"), ErrorCode.INVALID_REQUEST),
        (step("cleanup.policy", 3, "delete"), ErrorCode.INVALID_REQUEST),
        (step("retention.ms", 0, None), ErrorCode.INVALID_REQUEST),
        (step("retention.ms", 99, "1"), ErrorCode.INVALID_REQUEST),
        (step("max.compaction.lag.ms", 0, "1"), ErrorCode.INVALID_CONFIG),
    ):
        found, sentence = await stepped(cluster, refused)
        assert (found, refused["name"] in sentence) == (code, True)
    assert (await stepped(cluster, step("retention.ms", 0, "1"), step("retention.ms", 1, None)))[0] == 42
    assert cluster.configs == {ORDERS: OwnConfigs(Retention(-1, 1))}


async def test_a_resource_that_is_named_twice_is_refused_once() -> None:
    cluster = FakeCluster()
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs(retention_ms="3600000")}
    code, sentence = outcome(await asked(cluster, "AlterConfigs", {"resources": [resource] * 2}), "responses")
    assert code == ErrorCode.INVALID_REQUEST
    assert "is named 2 times" in sentence
    assert not cluster.configs


# --- what there is ----------------------------------------------------------------------------------------------------


async def test_sizes_of_partitions_are_those_of_one_directory() -> None:
    cluster = FakeCluster()
    cluster.partition_counts |= {"public/default/split": 3, "public/default/__oncelog_schemas": 0}
    cluster.sizes = {ORDERS: 700, "public/default/split-partition-0": 5, "public/default/split-partition-2": 6}
    [every] = (await asked(cluster, "DescribeLogDirs", {"topics": None}))["results"]
    assert (every["log_dir"], every["error_code"]) == ("/oncelog", 0)
    found = {each["name"]: [(p["partition_index"], p["partition_size"]) for p in each["partitions"]]
             for each in every["topics"]}  # fmt: skip
    assert found == {"orders": [(0, 700)], "split": [(0, 5), (2, 6)]}
    topics = [{"topic": "split", "partitions": [2, 1, 9, -1]}, {"topic": "missing", "partitions": [0]}]
    [some] = (await asked(cluster, "DescribeLogDirs", {"topics": topics}))["results"]
    [split] = some["topics"]
    assert [(p["partition_index"], p["partition_size"]) for p in split["partitions"]] == [(2, 6)]
    cluster.admin_error = UNAVAILABLE
    [failed] = (await asked(cluster, "DescribeLogDirs", {"topics": None}))["results"]
    assert failed["error_code"] == ErrorCode.REQUEST_TIMED_OUT


async def test_producers_are_shown_as_their_clients_know_them() -> None:
    """A client of Kafka by its id and epoch, any other by what the log knows."""
    cluster = FakeCluster()
    cluster.known_producers[ORDERS] = [
        KnownProducer("kafka/4711", 1, 3, (2 << 48) + 2**31 + 5, 1_700),
        KnownProducer("importer", 2, 7, 41, 1_800),
        KnownProducer("kafka/4712", 3, 1, -1, 1_900),
    ]
    topics = [{"name": "orders", "partition_indexes": [0, 1]}, {"name": "missing", "partition_indexes": [0]}]
    answer = await asked(cluster, "DescribeProducers", {"topics": topics})
    orders, missing = answer["topics"]
    first, second = orders["partitions"]
    fields = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp")
    assert [tuple(each[name] for name in fields) for each in first["active_producers"]] == [
        (4711, 2, 5, 1_700), (2, 7, 41, 1_800), (4712, 0, -1, 1_900)
    ]  # fmt: skip
    assert second["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- rights -----------------------------------------------------------------------------------------------------------


async def signed_in(client: RawClient, token: str) -> None:
    await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
    answer = await client.ask("SaslAuthenticate", 1, {"auth_bytes": b"\0me\0" + token.encode()})
    assert answer["error_code"] == 0


async def test_everything_is_asked_with_the_token_of_the_client() -> None:
    cluster = FakeCluster({"own": "admin"})
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await signed_in(client, "own")
        await client.ask("CreateTopics", 4, {"topics": [new_topic("new")], "timeout_ms": 1_000})
    assert cluster.administered_with == ["own"]


async def test_a_role_without_the_right_is_refused_by_topic_and_by_cluster() -> None:
    cluster = FakeCluster({"reader": "reader"})
    cluster.no_admins, cluster.rights = {"reader"}, {"reader": frozenset({Right.CONSUME})}
    topic = {"resource_type": TOPIC, "resource_name": "orders", "configs": [], "configuration_keys": None}
    broker = topic | {"resource_type": BROKER, "resource_name": "0"}
    expected = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await signed_in(client, "reader")
        shown = await client.ask("DescribeConfigs", 3, {"resources": [topic, broker]})
        assert tuple(each["error_code"] for each in shown["results"]) == expected
        changed = await client.ask("AlterConfigs", 1, {"resources": [topic, broker]})
        assert tuple(each["error_code"] for each in changed["responses"]) == expected
        deleted = await client.ask("DeleteTopics", 3, {"topic_names": ["orders"], "timeout_ms": 1_000})
        assert deleted["responses"][0]["error_code"] == expected[0]
        trial = {"topics": [new_topic("new")], "timeout_ms": 1_000, "validate_only": True}
        assert (await client.ask("CreateTopics", 4, trial))["topics"][0]["error_code"] == expected[0]
    assert ORDERS in cluster.partition_counts


@pytest.mark.hazard("operations-not-told")
async def test_metadata_says_what_the_client_may_do_when_asked() -> None:
    cluster = FakeCluster({"reader": "reader"})
    cluster.rights = {"reader": frozenset({Right.CONSUME})}
    wanted = {"topics": [{"name": "orders"}, {"name": "missing"}], "allow_auto_topic_creation": False}
    both = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await signed_in(client, "reader")
        found = await client.ask("Metadata", 8, wanted | both)
        silent = await client.ask("Metadata", 8, wanted)
    read, describe = 1 << 3, 1 << 8
    assert found["cluster_authorized_operations"] == describe
    assert [each["topic_authorized_operations"] for each in found["topics"]] == [read | describe, INT32_MIN]
    assert silent["cluster_authorized_operations"] == INT32_MIN
    assert {each["topic_authorized_operations"] for each in silent["topics"]} == {INT32_MIN}


# --- hostile ----------------------------------------------------------------------------------------------------------


async def test_thousands_of_topics_in_one_request_are_all_answered() -> None:
    cluster = FakeCluster()
    names = [f"missing-{number}" for number in range(5_000)]
    answer = await asked(cluster, "DeleteTopics", {"topic_names": names, "timeout_ms": 30_000})
    assert [each["name"] for each in answer["responses"]] == names
    assert {each["error_code"] for each in answer["responses"]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_every_request_of_administrators_may_be_empty() -> None:
    empty: Body = {"topics": [], "topic_names": [], "resources": []}
    async with kafka_world() as world, raw_client(world.port) as client:
        for api in ADMINISTRATION:
            for version in range(KNOWN[api].first, KNOWN[api].last + 1):
                await client.ask(api, version, empty)
