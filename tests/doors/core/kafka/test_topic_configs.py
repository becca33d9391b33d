"""Configurations of topics: what they mean as policies, what is shown, and what is refused."""

import pytest

from oncelog_doors.core.kafka.topic_configs import (
    FOR_EVER,
    AppliedConfigs,
    InvalidConfig,
    OwnConfigs,
    Retention,
    Source,
    broker_configs,
    changed,
    replacement,
    topic_configs,
)

NOTHING = OwnConfigs()
DEFAULTS = AppliedConfigs()
BYTES_MAX = 5_242_880
HOUR = Retention(60, -1)
#: A topic that clients are shown as compacted, by its own policies.
COMPACT = OwnConfigs(FOR_EVER, True)
COMPACT_APPLIED = AppliedConfigs(FOR_EVER, Source.TOPIC, True, Source.TOPIC)


def shown(applied: AppliedConfigs) -> dict[str, str]:
    return {each.name: each.value for each in topic_configs(applied, BYTES_MAX)}


@pytest.mark.parametrize(
    ("changes", "retention"),
    [
        ({"retention.ms": "3600000"}, HOUR),
        ({"retention.ms": " 3600000 "}, HOUR),
        ({"retention.ms": "1"}, Retention(1, -1)),
        ({"retention.ms": "60001"}, Retention(2, -1)),
        ({"retention.bytes": "1"}, Retention(-1, 1)),
        ({"retention.bytes": "1048577", "retention.ms": "-1"}, Retention(-1, 2)),
        ({"retention.ms": "-1"}, FOR_EVER),
        ({"retention.ms": str(2**63 - 1)}, FOR_EVER),
        ({"retention.ms": str((2**31 - 1) * 60_000)}, Retention(2**31 - 1, -1)),
    ],
)
def test_retention_is_rounded_up(changes: dict[str, str], retention: Retention) -> None:
    """In whole minutes and MiB, so that no less is kept than asked for."""
    assert changed(NOTHING, DEFAULTS, changes, BYTES_MAX) == OwnConfigs(retention)


def test_a_limit_that_is_not_named_keeps_the_value_that_applies() -> None:
    of_namespace = AppliedConfigs(Retention(10, 500), Source.DEFAULT_OF_CLUSTER)
    assert changed(NOTHING, of_namespace, {"retention.ms": "3600000"}, BYTES_MAX) == OwnConfigs(Retention(60, 500))
    own = OwnConfigs(Retention(60, 500))
    assert changed(own, of_namespace, {"retention.bytes": "-1"}, BYTES_MAX) == OwnConfigs(HOUR)


def test_the_default_of_both_limits_is_no_policy() -> None:
    own, applied = OwnConfigs(Retention(60, 500)), AppliedConfigs(Retention(60, 500), Source.TOPIC)
    both = {"retention.ms": None, "retention.bytes": None}
    assert changed(own, applied, both, BYTES_MAX) == NOTHING
    assert changed(own, applied, {"retention.bytes": None}, BYTES_MAX) == OwnConfigs(HOUR)
    assert changed(OwnConfigs(HOUR), applied, {"retention.ms": None}, BYTES_MAX) == NOTHING
    of_namespace = AppliedConfigs(Retention(10, 500), Source.DEFAULT_OF_CLUSTER)
    assert changed(NOTHING, of_namespace, {"retention.ms": None}, BYTES_MAX) == NOTHING


@pytest.mark.hazard("compact-refused")
def test_compact_keeps_everything_and_is_shown() -> None:
    """Kafka Connect asks for it, and looks whether exactly this is shown."""
    assert changed(NOTHING, DEFAULTS, {"cleanup.policy": "compact"}, BYTES_MAX) == COMPACT
    assert shown(COMPACT_APPLIED)["cleanup.policy"] == "compact"
    of_namespace = AppliedConfigs(Retention(10, 500), Source.DEFAULT_OF_CLUSTER)
    assert changed(NOTHING, of_namespace, {"cleanup.policy": "compact", "retention.ms": "-1"}, BYTES_MAX) == COMPACT


def test_compact_and_delete_keeps_by_retention_and_is_shown_so() -> None:
    changes = {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    assert changed(NOTHING, DEFAULTS, changes, BYTES_MAX) == OwnConfigs(HOUR, True)
    assert shown(AppliedConfigs(HOUR, Source.TOPIC, True, Source.TOPIC))["cleanup.policy"] == "compact,delete"
    assert shown(AppliedConfigs(HOUR, Source.TOPIC))["cleanup.policy"] == "delete"


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
@pytest.mark.hazard("compact-refused")
def test_what_is_kept_for_ever_gets_no_limit(name: str) -> None:
    with pytest.raises(InvalidConfig, match="all messages are kept: leave it out"):
        changed(COMPACT, COMPACT_APPLIED, {name: "3600000"}, BYTES_MAX)
    assert changed(COMPACT, COMPACT_APPLIED, {name: None}, BYTES_MAX) == COMPACT
    both = {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    assert changed(COMPACT, COMPACT_APPLIED, both, BYTES_MAX) == OwnConfigs(HOUR, True)


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
@pytest.mark.hazard("built-in-config-refused")
def test_a_limit_beside_compact_is_taken_and_deletes_nothing(name: str) -> None:
    """As on Kafka. Quix Streams creates the topics of its state so, with the limits of its input."""
    of_namespace = AppliedConfigs(Retention(10, 500), Source.DEFAULT_OF_CLUSTER)
    for own, applied in ((NOTHING, DEFAULTS), (NOTHING, of_namespace), (OwnConfigs(HOUR), DEFAULTS)):
        assert changed(own, applied, {"cleanup.policy": "compact", name: "3600000"}, BYTES_MAX) == COMPACT
    with pytest.raises(InvalidConfig, match="must be -1 for no limit"):
        changed(NOTHING, DEFAULTS, {"cleanup.policy": "compact", name: "an hour"}, BYTES_MAX)


def test_delete_ends_compact_and_deletes_nothing_by_itself() -> None:
    assert changed(COMPACT, COMPACT_APPLIED, {"cleanup.policy": "delete"}, BYTES_MAX) == OwnConfigs(FOR_EVER, False)
    assert changed(COMPACT, COMPACT_APPLIED, {"cleanup.policy": None}, BYTES_MAX) == OwnConfigs(FOR_EVER)


def test_a_replacement_unsets_what_it_does_not_name() -> None:
    own, applied = OwnConfigs(HOUR, True), AppliedConfigs(HOUR, Source.TOPIC, True, Source.TOPIC)
    assert changed(own, applied, replacement({}), BYTES_MAX) == NOTHING
    assert changed(own, applied, replacement({"retention.bytes": "1048576"}), BYTES_MAX) == OwnConfigs(Retention(-1, 1))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.ms", "0", "retention.ms: '0' must be -1 for no limit, or 1 to 9223372036854775807"),
        ("retention.ms", "-2", "'-2' must be"),
        ("retention.ms", "1e3", "'1e3' must be"),
        ("retention.ms", "٣", "must be"),
        ("retention.ms", "9" * 19, "must be"),
        ("retention.ms", "9" * 4_000, "must be"),
        ("retention.bytes", "", "'' must be"),
        ("cleanup.policy", "", "must be delete, compact or both"),
        ("cleanup.policy", "compact,keep", "must be delete, compact or both"),
        ("max.message.bytes", "1", "max.message.bytes: it is 5242880 and cannot be set to '1'"),
        ("message.timestamp.type", "LogAppendTime", "it is CreateTime and cannot be set"),
        ("compression.type", "zstd", "it is producer and cannot be set"),
        ("min.insync.replicas", "2", "it is 1 and cannot be set"),
        ("max.compaction.lag.ms", "1", "and cannot be set to '1'"),
        ("segment.bytes", "50 MiB", "segment.bytes: '50 MiB' must be a value of type int, or left out"),
        ("segment.bytes", "9" * 4_000, "must be a value of type int"),
        ("preallocate", "1", "must be a value of type boolean"),
        ("min.cleanable.dirty.ratio", "nan", "must be a value of type double"),
        ("no.such", "1", "no.such: a topic has no such configuration"),
        ("x" * 30_000, None, "a topic has no such configuration"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(name: str, value: str | None, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message.replace("(", r"\(")) as raised:
        changed(NOTHING, DEFAULTS, {name: value}, BYTES_MAX)
    assert str(raised.value.details["field"]) == name[:60]
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "52428800"),
        ("segment.ms", " 600000 "),
        ("min.compaction.lag.ms", "86400000"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("preallocate", "True"),
        ("flush.messages", "1"),
    ],
)
@pytest.mark.hazard("built-in-config-refused")
def test_a_configuration_of_a_brokers_files_is_taken_and_has_no_effect(name: str, value: str) -> None:
    """Kafka Streams creates topics with segment.bytes=52428800."""
    assert changed(NOTHING, DEFAULTS, {name: value}, BYTES_MAX) == NOTHING
    assert changed(COMPACT, COMPACT_APPLIED, {name: value}, BYTES_MAX) == COMPACT


def test_a_fixed_configuration_may_be_set_to_what_it_is() -> None:
    """Clients write back what they have read."""
    given: dict[str, str | None] = {
        each.name: each.value for each in topic_configs(DEFAULTS, BYTES_MAX) if each.read_only
    }
    assert changed(NOTHING, DEFAULTS, given, BYTES_MAX) == NOTHING
    assert changed(NOTHING, DEFAULTS, {"max.message.bytes": None}, BYTES_MAX) == NOTHING


def test_all_is_shown_in_kafkas_units_with_its_source() -> None:
    applied = AppliedConfigs(Retention(60, 5), Source.DEFAULT_OF_CLUSTER)
    found = {each.name: each for each in topic_configs(applied, BYTES_MAX)}
    assert (found["retention.ms"].value, found["retention.bytes"].value) == ("3600000", "5242880")
    assert found["retention.ms"].source is Source.DEFAULT_OF_CLUSTER
    assert found["cleanup.policy"].source is Source.DEFAULT
    assert found["max.message.bytes"].value == str(BYTES_MAX)
    assert {name for name, each in found.items() if not each.read_only} == {
        "retention.ms", "retention.bytes", "cleanup.policy",
    }  # fmt: skip
    assert list(found) == sorted(found)


def test_the_broker_says_what_the_cluster_does() -> None:
    found = {each.name: each.value for each in broker_configs(0, BYTES_MAX, 6)}
    assert found["delete.topic.enable"] == "true"
    assert found["message.max.bytes"] == str(BYTES_MAX)
    assert found["num.partitions"] == "6"
    assert all(each.read_only for each in broker_configs(0, BYTES_MAX, 6))
