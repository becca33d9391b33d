"""Requests for the schemas of topics: they are those that clients store with Pulsar's protocol."""

from typing import Any

import pytest

from oncelog.core.access import UNCHECKED
from oncelog.core.errors import OncelogError, PermissionDenied, TopicNotFound
from oncelog.core.names import parse_topic
from oncelog_doors.core.pulsar.schemas import Schema, encode_version
from oncelog_doors.rest import schemas
from oncelog_doors.wire import pulsar_values_pb2 as values
from tests.doors.pulsar.fake_schemas import STORED_MS
from tests.doors.rest.fake_rest import FakeRest, FakeRestLog, door_at

SCHEMAS = "/admin/v2/schemas/acme/web/one"
TOPIC = parse_topic("acme/web/one")
RECORD = '{"type":"record","name":"Order","fields":[]}'
UPLOADED = {"type": "AVRO", "schema": RECORD, "properties": {"b": "2", "a": "1"}}
AVRO, JSON = 4, 2


def of_client(data: bytes, kind: int = AVRO) -> Schema:
    """As a client sends it."""
    return Schema(kind, data, values.Schema(name="s", data=data, type=kind).SerializeToString())


def shown(version: int, data: str, properties: dict[str, str]) -> dict[str, Any]:
    stored_ms = STORED_MS + version
    return {"version": version, "type": "AVRO", "timestamp": stored_ms, "data": data, "properties": properties}


@pytest.mark.asyncio
async def test_schemas_of_clients_and_of_rest_have_one_history() -> None:
    """The same definition has the same version, whichever way it came."""
    log = FakeRestLog()
    first = await log.schemas.store(TOPIC, UNCHECKED, of_client(RECORD.encode()))
    assert first == encode_version(0)
    async with door_at(FakeRest(), log=log) as door:
        assert (await door.post(f"{SCHEMAS}/schema", json=UPLOADED)).json() == {"version": {"version": 0}}
        second = await door.post(f"{SCHEMAS}/schema", json=UPLOADED | {"schema": "{}"})
        assert second.json() == {"version": {"version": 1}}
        assert (await door.get(f"{SCHEMAS}/schema")).json() == shown(1, "{}", UPLOADED["properties"])  # type: ignore[arg-type]
        assert (await door.get(f"{SCHEMAS}/schema/0")).json() == shown(0, RECORD, {})
        every = (await door.get(f"{SCHEMAS}/schemas")).json()["getSchemaResponses"]
        assert [each["version"] for each in every] == [0, 1]
    found = values.Schema.FromString((await log.schemas.find(TOPIC, UNCHECKED, None)).schema)
    assert (found.name, found.data, found.type) == ("one", b"{}", AVRO)
    assert {each.key: each.value for each in found.properties} == UPLOADED["properties"]


@pytest.mark.asyncio
async def test_version_of_a_schema() -> None:
    async with door_at(FakeRest()) as door:
        await door.post(f"{SCHEMAS}/schema", json=UPLOADED)
        assert (await door.post(f"{SCHEMAS}/version", json=UPLOADED)).json() == {"version": 0}
        answer = await door.post(f"{SCHEMAS}/version", json=UPLOADED | {"schema": "{}"})
        assert (answer.status_code, answer.json()["reason"]) == (404, "topic acme/web/one does not have this schema")
        assert (await door.get(f"{SCHEMAS}/schemas")).json() == {
            "getSchemaResponses": [shown(0, RECORD, {"a": "1", "b": "2"})]
        }


@pytest.mark.asyncio
async def test_schema_of_another_type_is_refused() -> None:
    """As by a producer. The test of compatibility says so, and stores nothing."""
    log = FakeRestLog()
    async with door_at(FakeRest(), log=log) as door:
        for kind, fits in (("JSON", True), ("AVRO", True)):
            answer = await door.post(f"{SCHEMAS}/compatibility", json=UPLOADED | {"type": kind})
            assert (answer.status_code, answer.json()["compatibility"]) == (202, fits)
        await log.schemas.store(TOPIC, UNCHECKED, of_client(b"{}", JSON))
        answer = await door.post(f"{SCHEMAS}/compatibility", json=UPLOADED)
        assert answer.json() == {"compatibility": False, "schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE"}
        answer = await door.post(f"{SCHEMAS}/schema", json=UPLOADED)
        assert answer.status_code == 409
        assert "of type AVRO, and the topic has schemas of type JSON" in answer.json()["reason"]
        assert len((await door.get(f"{SCHEMAS}/schemas")).json()["getSchemaResponses"]) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(("error", "status"), [(PermissionDenied("no"), 403), (TopicNotFound("no such topic"), 404)])
async def test_error_of_the_log(error: OncelogError, status: int) -> None:
    log = FakeRestLog()
    log.schemas.refusal = error
    async with door_at(FakeRest(), log=log) as door:
        answers = [await door.get(f"{SCHEMAS}/{path}") for path in ("schema", "schema/0", "schemas")]
        answers += [
            await door.post(f"{SCHEMAS}/{path}", json=UPLOADED) for path in ("schema", "compatibility", "version")
        ]
    assert {(each.status_code, each.json()["reason"]) for each in answers} == {(status, error.message)}


@pytest.mark.asyncio
async def test_schemas_above_a_limit_are_shown_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "EVERY_BYTES_MAX", 10)
    log = FakeRestLog()
    await log.schemas.store(TOPIC, UNCHECKED, of_client(RECORD.encode()))
    async with door_at(FakeRest(), log=log) as door:
        assert (await door.get(f"{SCHEMAS}/schemas")).status_code == 409
        assert (await door.get(f"{SCHEMAS}/schema/0")).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "schema/x", None, 400, "version: must be a whole number, not 'x'"),
        ("GET", "schema/-1", None, 400, "version: must be 0 to 9223372036854775807, not -1"),
        ("GET", f"schema/{1 << 63}", None, 400, "version: must be 0 to "),
        ("GET", "schema/5", None, 404, "the topic has no schema"),
        ("POST", "schema", None, 400, "the body must be an object"),
        ("POST", "schema", {"type": "XML"}, 400, "type: 'XML' is not stored: use one of STRING"),
        ("POST", "version", [], 400, "the body must be an object"),
        ("POST", "compatibility", {"type": "AVRO", "schema": "{"}, 400, "schema: a definition of this type is JSON"),
        ("DELETE", "schema", None, 405, "schemas are not deleted"),
        ("GET", "metadata", None, 501, "this call about schemas is not offered here"),
        ("PUT", "schema", UPLOADED, 405, "PUT /admin/v2/schemas/acme/web/one/schema is not offered here"),
    ],
)
async def test_request_that_is_not_served(method: str, path: str, body: Any, status: int, reason: str) -> None:
    log = FakeRestLog()
    async with door_at(FakeRest(), log=log) as door:
        answer = await door.request(method, f"{SCHEMAS}/{path}", json=body)
        assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (status, reason)
        assert (await door.get(f"{SCHEMAS}/schemas")).json() == {"getSchemaResponses": []}
