"""What a door asks REST for administrators, and what it makes of the answers."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from oncelog.core.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidArgument,
    InvalidName,
    PreconditionFailed,
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.names import NamespaceName, parse_topic
from oncelog_doors.core.kafka.administration_codes import refused_for
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.topic_configs import FOR_EVER, AppliedConfigs, OwnConfigs, Retention, Source
from oncelog_doors.log_client.kafka_administration import KafkaAdministration
from oncelog_doors.rest.ports import RestAnswer

pytestmark = pytest.mark.asyncio

ORDERS = parse_topic("orders")
PLACE = "/admin/v2/persistent/public/default/orders"
HOUR = Retention(60, -1)
LIMIT_MS = 60_000
Answer = RestAnswer | Exception


def ok(value: Any = None, tag: str = "") -> RestAnswer:
    return RestAnswer(200, b"" if value is None else json.dumps(value).encode(), {"etag": tag} if tag else {})


def problem(status: int, code: str) -> RestAnswer:
    return RestAnswer(status, json.dumps({"code": code, "detail": f"it is {code}"}).encode())


NOT_FOUND, CONFLICT = problem(404, "topic_not_found"), problem(409, "conflict")
CHANGED, AWAY = problem(412, "precondition_failed"), problem(503, "service_unavailable")


class PlannedRest:
    """answers: {method and target: its answers, in order}; the last one stays."""

    def __init__(self, answers: Mapping[str, list[Answer]]) -> None:
        self._answers = {call: list(each) for call, each in answers.items()}
        #: (call, body, if-match)
        self.asked: list[tuple[str, Any, str]] = []
        self.authorizations: set[str | None] = set()

    async def ask(
        self, method: str, target: str, body: bytes, *, headers: Mapping[str, str], authorization: str | None
    ) -> RestAnswer:
        self.authorizations.add(authorization)
        call = f"{method} {target}"
        self.asked.append((call, json.loads(body) if body else None, headers.get("if-match", "")))
        planned = self._answers[call]
        answer = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def changes(self) -> list[tuple[str, Any, str]]:
        return [each for each in self.asked if not each[0].startswith("GET")]


def policies(retention: Retention, compact: bool, source: str = "default") -> dict[str, Any]:
    value = {"retentionTimeInMinutes": retention.minutes, "retentionSizeInMB": retention.mib}
    return {"retention": {"value": value, "source": source}, "kafkaCompact": {"value": compact, "source": source}}


def body_of(retention: Retention) -> dict[str, int]:
    return {"retentionTimeInMinutes": retention.minutes, "retentionSizeInMB": retention.mib}


def to(new: OwnConfigs) -> Callable[[OwnConfigs, AppliedConfigs], OwnConfigs]:
    return lambda _own, _applied: new


def unset(*tags: str) -> dict[str, list[Answer]]:
    """A topic without policies of its own, with these tags at each attempt."""
    return {
        f"GET {PLACE}/retention": [ok(None, tag) for tag in tags],
        f"GET {PLACE}/kafkaCompact": [ok(None, tag) for tag in tags],
        f"GET {PLACE}/policies": [ok(policies(FOR_EVER, False))],
    }


@pytest.mark.hazard("compact-refused")
async def test_what_is_kept_for_ever_is_set_before_it_is_shown_so() -> None:
    """Each change names the tag of what was read, or of the change before it."""
    rest = PlannedRest(
        {
            **unset('"1"'),
            f"POST {PLACE}/retention": [ok(None, '"2"')],
            f"POST {PLACE}/kafkaCompact": [ok(None, '"3"')],
        }
    )
    await KafkaAdministration(rest, "token").change_configs(ORDERS, to(OwnConfigs(FOR_EVER, True)))
    assert rest.changes() == [
        (f"POST {PLACE}/retention", body_of(FOR_EVER), '"1"'),
        (f"POST {PLACE}/kafkaCompact", True, '"2"'),
    ]
    assert rest.authorizations == {"Bearer token"}


async def test_a_change_meanwhile_is_kept_and_the_change_is_made_of_the_new_value() -> None:
    seen: list[OwnConfigs] = []

    def change(own: OwnConfigs, _applied: AppliedConfigs) -> OwnConfigs:
        seen.append(own)
        return OwnConfigs(HOUR, own.compact)

    rest = PlannedRest(
        {
            **unset('"1"'),
            f"GET {PLACE}/retention": [ok(None, '"1"'), ok(None, '"2"'), ok(body_of(Retention(5, 5)), '"3"')],
            f"GET {PLACE}/kafkaCompact": [ok(None, '"1"'), ok(True, '"3"'), ok(True, '"3"')],
            f"POST {PLACE}/retention": [CHANGED, ok(None, '"4"')],
        }
    )
    await KafkaAdministration(rest, None).change_configs(ORDERS, change)
    assert seen == [OwnConfigs(), OwnConfigs(Retention(5, 5), True)]
    assert [tag for _, _, tag in rest.changes()] == ['"1"', '"3"']
    assert rest.authorizations == {None}


async def test_a_change_that_never_finds_its_value_is_reported() -> None:
    rest = PlannedRest({**unset('"1"'), f"POST {PLACE}/retention": [CHANGED]})
    with pytest.raises(PreconditionFailed):
        await KafkaAdministration(rest, None).change_configs(ORDERS, to(OwnConfigs(HOUR)))
    assert len(rest.changes()) == 5


async def test_what_is_not_set_any_more_is_unset_and_what_stays_is_not_written() -> None:
    own: dict[str, list[Answer]] = {
        f"GET {PLACE}/retention": [ok(body_of(HOUR), '"1"')],
        f"GET {PLACE}/kafkaCompact": [ok(True, '"1"')],
        f"GET {PLACE}/policies": [ok(policies(HOUR, True, "topic"))],
    }
    rest = PlannedRest({**own, f"DELETE {PLACE}/retention": [ok()]})
    await KafkaAdministration(rest, None).change_configs(ORDERS, to(OwnConfigs(None, True)))
    assert rest.changes() == [(f"DELETE {PLACE}/retention", None, '"1"')]


async def test_policies_are_configurations_with_their_sources() -> None:
    """A metadata service of an earlier version does not know the switch."""
    answer = {"retention": policies(HOUR, True, "partitioned_topic")["retention"]}
    rest = PlannedRest(
        {
            f"GET {PLACE}/policies": [ok(answer)],
            "GET /admin/v2/namespaces/public/default/policies": [ok(policies(HOUR, True, "namespace"))],
        }
    )
    admin = KafkaAdministration(rest, None)
    assert await admin.configs(ORDERS) == AppliedConfigs(HOUR, Source.TOPIC)
    cluster = Source.DEFAULT_OF_CLUSTER
    found = await admin.configs_of_namespace(NamespaceName("public", "default"))
    assert found == AppliedConfigs(HOUR, cluster, True, cluster)


async def test_a_topic_without_partitions_is_deleted_as_one() -> None:
    rest = PlannedRest({f"DELETE {PLACE}/partitions": [CONFLICT], f"DELETE {PLACE}": [ok()]})
    await KafkaAdministration(rest, None).delete(ORDERS, LIMIT_MS)
    assert [call for call, _, _ in rest.asked] == [f"DELETE {PLACE}/partitions", f"DELETE {PLACE}"]


async def test_a_deletion_is_asked_for_until_it_is_complete() -> None:
    """An attempt without an answer may have done it. A topic that was never there is another matter."""
    away = ServiceUnavailable("nobody answers")
    rest = PlannedRest({f"DELETE {PLACE}/partitions": [AWAY, away, NOT_FOUND]})
    await KafkaAdministration(rest, None).delete(ORDERS, LIMIT_MS)
    assert len(rest.asked) == 3
    with pytest.raises(TopicNotFound):
        await KafkaAdministration(PlannedRest({f"DELETE {PLACE}/partitions": [NOT_FOUND]}), None).delete(
            ORDERS, LIMIT_MS
        )
    with pytest.raises(DeadlineExceeded, match="the deletion of public/default/orders: no answer within 1 ms"):
        await KafkaAdministration(PlannedRest({f"DELETE {PLACE}/partitions": [AWAY]}), None).delete(ORDERS, 1)


async def test_a_creation_is_asked_for_once() -> None:
    """A second attempt would find the topic of the first one, or of another client."""
    rest = PlannedRest({f"PUT {PLACE}/partitions": [AWAY]})
    with pytest.raises(ServiceUnavailable):
        await KafkaAdministration(rest, None).create(ORDERS, 3)
    assert rest.asked == [(f"PUT {PLACE}/partitions", 3, "")]
    with pytest.raises(Conflict):
        await KafkaAdministration(PlannedRest({f"PUT {PLACE}/partitions": [CONFLICT]}), None).create(ORDERS, 3)


ALLOWED = "GET /admin/v2/namespaces/public/default/autoTopicCreation?applied=true"


@pytest.mark.parametrize("answer", [ok(), CONFLICT])
async def test_a_topic_is_created_by_its_use_with_partitions(answer: Answer) -> None:
    """Another client may be first."""
    rest = PlannedRest({ALLOWED: [ok({"value": True, "source": "default"})], f"PUT {PLACE}/partitions": [answer]})
    await KafkaAdministration(rest, None).create_by_use(ORDERS, 3, LIMIT_MS)
    assert rest.changes() == [(f"PUT {PLACE}/partitions", 3, "")]


async def test_a_namespace_may_forbid_that_topics_are_created_by_their_use() -> None:
    rest = PlannedRest({ALLOWED: [ok({"value": False, "source": "namespace"})]})
    with pytest.raises(TopicNotFound, match="its namespace disables automatic topic creation"):
        await KafkaAdministration(rest, None).create_by_use(ORDERS, 3, LIMIT_MS)
    assert not rest.changes()


async def test_an_unknown_policy_or_creation_is_an_error_that_clients_retry() -> None:
    class Silent(PlannedRest):
        async def ask(self, *words: Any, **more: Any) -> RestAnswer:
            await asyncio.Event().wait()
            raise AssertionError

    away = PlannedRest({ALLOWED: [AWAY]})
    for rest, limit_ms in ((Silent({}), 1), (away, LIMIT_MS)):
        with pytest.raises(ServiceUnavailable):
            await KafkaAdministration(rest, None).create_by_use(ORDERS, 3, limit_ms)
        assert not rest.changes()


async def test_a_topic_whose_partitions_could_not_be_used_is_not_created() -> None:
    rest, long = PlannedRest({}), parse_topic("x" * 244)
    with pytest.raises(InvalidName, match="at most 243 are allowed"):
        await KafkaAdministration(rest, None).create(long, 1)
    with pytest.raises(InvalidName, match="at most 242 are allowed"):
        await KafkaAdministration(rest, None).grow(long, 11, LIMIT_MS)
    assert not rest.asked


async def test_a_partition_that_was_never_used_is_empty() -> None:
    """A topic that is missing is not."""
    part, place = parse_topic("orders-partition-1"), f"{PLACE}-partition-1"
    calls: dict[str, list[Answer]] = {
        f"POST {place}/trim": [NOT_FOUND],
        f"GET {place}/producers?limit=1000": [NOT_FOUND],
        f"POST {PLACE}/trim": [NOT_FOUND],
        f"GET {PLACE}/producers?limit=1000": [NOT_FOUND],
    }
    admin = KafkaAdministration(PlannedRest(calls), None)
    assert [await admin.trim(part, before, LIMIT_MS) for before in (None, 0)] == [0, 0]
    with pytest.raises(
        InvalidArgument, match="before_index is 1, and public/default/orders-partition-1 ends at 0"
    ) as refused:
        await admin.trim(part, 1, LIMIT_MS)
    assert refused_for(refused.value).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await admin.producers(part) == ()
    with pytest.raises(TopicNotFound):
        await admin.trim(ORDERS, None, LIMIT_MS)
    with pytest.raises(TopicNotFound):
        await admin.producers(ORDERS)


async def test_a_trim_names_its_index_and_is_repeated() -> None:
    rest = PlannedRest({f"POST {PLACE}/trim": [AWAY, ok({"first_index": 40})]})
    assert await KafkaAdministration(rest, None).trim(ORDERS, 42, LIMIT_MS) == 40
    assert [body for _, body, _ in rest.asked] == [{"before_index": 42}] * 2


async def test_sizes_are_read_in_pages_without_those_that_are_not_known() -> None:
    place = "/admin/v2/topics/public/default?limit=1000"
    first = {"topics": [{"topic": "a", "bytes": 1}, {"topic": "b", "bytes": None}], "next_after": "x"}
    rest = PlannedRest(
        {
            f"GET {place}": [ok(first)],
            f"GET {place}&after=x": [ok({"topics": [{"topic": "c", "bytes": 3}], "next_after": None})],
        }
    )
    found = await KafkaAdministration(rest, None).sizes(NamespaceName("public", "default"), None)
    assert found == {"a": 1, "c": 3}
