"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, of topics and of the broker."""

import asyncio
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any

from oncelog_doors.core.kafka.administration_codes import Refused
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.operations import may_describe_broker
from oncelog_doors.core.kafka.topic_configs import (
    AppliedConfigs,
    Config,
    OwnConfigs,
    Source,
    broker_configs,
    changed,
    replacement,
    topic_configs,
)
from oncelog_doors.core.kafka.topic_names import topic_of
from oncelog_doors.kafka.asking import Asking
from oncelog_doors.kafka.changes import Changes, outcome_of
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.small_answers import NODE_ID

_TOPIC, _BROKER = 2, 4
#: The broker's defaults, which clients name so.
_ALL_BROKERS = ""
#: What a request makes of the configurations of one resource that it names.
_Changes = Mapping[str, str | None]


class _Change(IntEnum):
    """What IncrementalAlterConfigs does. The numbers are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def describe_configs(around: Asking, asked: Body) -> Body:
    changes = Changes()
    synonyms = asked.get("include_synonyms", False)

    async def one(resource: Body) -> Body:
        kind, name, keys = resource["resource_type"], resource["resource_name"], resource["configuration_keys"]
        found = await changes.result(lambda: _shown(around, kind, name))
        configs = [] if isinstance(found, Refused) else found
        shown = [_described(each, synonyms) for each in configs if not keys or each.name in keys]
        return {"resource_type": kind, "resource_name": name, "configs": shown, **outcome_of(found)}

    return {"results": await asyncio.gather(*map(one, asked["resources"]))}


async def _shown(around: Asking, kind: int, name: str) -> list[Config]:
    bytes_max = around.cluster.batch_bytes_max
    if kind == _TOPIC:
        return topic_configs(await around.administration.configs(topic_of(name, around.namespace)), bytes_max)
    await _check_broker(around, kind, name)
    return [] if name == _ALL_BROKERS else broker_configs(NODE_ID, bytes_max, around.cluster.partitions_default)


async def _check_broker(around: Asking, kind: int, name: str) -> None:
    """Raises Refused for another resource, and for a role that may not administer."""
    if kind != _BROKER:
        sentence = f"resources of type {kind} have no configurations here: topics (2) and the broker (4) have"
        raise Refused(ErrorCode.INVALID_REQUEST, sentence)
    if name not in {str(NODE_ID), _ALL_BROKERS}:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no broker {name[:60]!r}: the only one is {NODE_ID}")
    if not may_describe_broker(await around.cluster.rights_of(around.namespace, around.caller)):
        sentence = f"role {around.caller.role} has no right to admin in namespace {around.namespace}"
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, sentence)


def _described(config: Config, synonyms: bool) -> Body:
    """synonyms: the client asked for them."""
    synonym = {"name": config.name, "value": config.value, "source": config.source}
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_default": config.source == Source.DEFAULT,
        "synonyms": [synonym] if synonyms else [],
        "config_type": config.kind,
        "documentation": None,
    }


async def alter_configs(around: Asking, asked: Body) -> Body:
    """What a resource is not given has its default afterwards."""
    return await _altered(around, asked, lambda configs: replacement({each["name"]: each["value"] for each in configs}))


async def incremental_alter_configs(around: Asking, asked: Body) -> Body:
    return await _altered(around, asked, _steps)


def _steps(configs: list[Body]) -> _Changes:
    """Raises Refused."""
    found: dict[str, str | None] = {}
    for each in configs:
        name, operation = each["name"], each["config_operation"]
        if operation == _Change.SET and each["value"] is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name[:60]}: its new value is null: give one, or delete it")
        if operation not in {_Change.SET, _Change.DELETE}:
            sentence = f"{name[:60]}: operation {operation} is not offered: set the whole value (0), or delete it (1)"
            raise Refused(ErrorCode.INVALID_REQUEST, sentence)
        found[name] = each["value"] if operation == _Change.SET else None
    return found


async def _altered(around: Asking, asked: Body, changes_of: Callable[[list[Body]], _Changes]) -> Body:
    changes = Changes()
    named: dict[tuple[int, str], list[Body]] = {}
    for each in asked["resources"]:
        named.setdefault((each["resource_type"], each["resource_name"]), []).append(each)

    async def one(kind: int, name: str, given: list[Body]) -> Body:
        result = await changes.result(partial(_alter, around, kind, name, given, changes_of, asked["validate_only"]))
        return {"resource_type": kind, "resource_name": name, **outcome_of(result)}

    return {"responses": await asyncio.gather(*(one(*key, given) for key, given in named.items()))}


async def _alter(
    around: Asking,
    kind: int,
    name: str,
    given: list[Body],
    changes_of: Callable[[list[Body]], _Changes],
    is_trial: bool,
) -> None:
    if len(given) > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resource {name[:60]!r} is named {len(given)} times")
    configs: list[Any] = given[0]["configs"]
    if len({each["name"] for each in configs}) < len(configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "a configuration is named twice: give each of them one value")
    if kind != _TOPIC:
        await _check_broker(around, kind, name)
        sentence = "the configurations of the broker cannot be altered: they are settings of the door's process"
        raise Refused(ErrorCode.INVALID_REQUEST, sentence)
    admin, topic, wanted = around.administration, topic_of(name, around.namespace), changes_of(configs)

    def change(own: OwnConfigs, applied: AppliedConfigs) -> OwnConfigs:
        return changed(own, applied, wanted, around.cluster.batch_bytes_max)

    if is_trial:
        change(OwnConfigs(), await admin.configs(topic))
    else:
        await admin.change_configs(topic, change)
