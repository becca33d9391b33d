"""Routes for the schemas of topics. They are those that clients store and read with Pulsar's protocol."""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from oncelog.core.access import Caller
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.schemas import FoundSchema, IncompatibleSchema, Schema, decode_version, encode_version
from oncelog_doors.core.rest.fields import check_range
from oncelog_doors.core.rest.refusals import Refused
from oncelog_doors.core.rest.schemas import STRATEGY, GivenSchema, schema_of, shown_schema
from oncelog_doors.rest.asking import BodyOf
from oncelog_doors.rest.log_calls import CallerOf, LogOf, TopicOf, in_time
from oncelog_doors.rest.ports import SchemasPort
from oncelog_doors.wire import pulsar_values_pb2 as values

_TOPIC = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_ONE = f"{_TOPIC}/schema"
#: Of all schemas of a topic in one answer.
EVERY_BYTES_MAX = 16 * 1024 * 1024
_VERSION_MAX = (1 << 63) - 1
_NOT_DELETED = (
    "schemas are not deleted: clients need them to read the messages that were stored with them. They end with their "
    "topic; `pulsar-admin topics delete` deletes it"
)


class _OfTopic(NamedTuple):
    """The schemas of a topic, for a caller."""

    schemas: SchemasPort
    topic: TopicName
    caller: Caller


async def _of_topic(topic: TopicOf, caller: CallerOf, log: LogOf) -> _OfTopic:
    return _OfTopic(log.schemas, topic, caller)


OfTopic = Annotated[_OfTopic, Depends(_of_topic)]


def routes() -> APIRouter:
    router = APIRouter()
    _add_reading(router)
    _add_writing(router)
    return router


def _add_reading(router: APIRouter) -> None:
    @router.get(_ONE)
    async def newest(of: OfTopic) -> dict[str, Any]:
        return _shown(await in_time(of.schemas.find(of.topic, of.caller, None)))

    @router.get(f"{_ONE}/{{version}}")
    async def one(of: OfTopic, version: str) -> dict[str, Any]:
        number = check_range("version", version, _VERSION_MAX)
        return _shown(await in_time(of.schemas.find(of.topic, of.caller, encode_version(number))))

    @router.get(f"{_TOPIC}/schemas")
    async def every(of: OfTopic) -> dict[str, Any]:
        found = await in_time(of.schemas.every(of.topic, of.caller, EVERY_BYTES_MAX))
        return {"getSchemaResponses": [_shown(each) for each in found]}


def _add_writing(router: APIRouter) -> None:
    @router.post(_ONE)
    async def upload(of: OfTopic, body: BodyOf) -> dict[str, Any]:
        schema = _given(of.topic, body)
        version = await in_time(of.schemas.store(of.topic, of.caller, schema))
        return {"version": {"version": decode_version(version)}}

    @router.post(f"{_TOPIC}/compatibility")
    async def compatibility(of: OfTopic, body: BodyOf) -> Response:
        """Whether the schema could be stored: the first one of a topic decides the type of all."""
        try:
            await in_time(of.schemas.compare(of.topic, of.caller, _given(of.topic, body)))
        except IncompatibleSchema:
            fits = False
        else:
            fits = True
        return JSONResponse({"compatibility": fits, "schemaCompatibilityStrategy": STRATEGY}, 202)

    @router.post(f"{_TOPIC}/version")
    async def version_of(of: OfTopic, body: BodyOf) -> dict[str, int]:
        version = await in_time(of.schemas.compare(of.topic, of.caller, _given(of.topic, body)))
        if version is None:
            raise Refused(404, f"topic {of.topic} does not have this schema")
        return {"version": decode_version(version)}

    @router.delete(_ONE)
    async def delete(of: OfTopic) -> None:
        raise Refused(405, _NOT_DELETED)


def _given(topic: TopicName, body: Any) -> Schema:
    """As a client would send it. Raises Refused."""
    kind, data, properties = schema_of(body)
    whole = values.Schema(name=topic.local, data=data, type=kind)
    whole.properties.extend(values.Property(key=name, value=value) for name, value in sorted(properties.items()))
    return Schema(kind, data, whole.SerializeToString())


def _shown(found: FoundSchema) -> dict[str, Any]:
    schema = values.Schema.FromString(found.schema)
    given = GivenSchema(schema.type, schema.data, {each.key: each.value for each in schema.properties})
    return shown_schema(given, decode_version(found.version), found.stored_ms)
