"""Schemas as Pulsar's REST has them, and as they are stored."""

import json
from typing import Any

import pytest

from oncelog_doors.core.rest.refusals import Refused
from oncelog_doors.core.rest.schemas import GivenSchema, schema_of, shown_schema

RECORD = '{"type":"record","name":"Order","fields":[]}'
JSON, AVRO, STRING, KEY_VALUE = 2, 4, 1, 15


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "AVRO", "schema": RECORD, "properties": {"a": "b"}}, (AVRO, RECORD.encode(), {"a": "b"})),
        ({"type": "JSON", "schema": " [1] "}, (JSON, b" [1] ", {})),  # byte by byte: it may be a client's, too
        ({"type": "STRING", "schema": ""}, (STRING, b"", {})),
        ({"type": "STRING", "schema": None, "properties": None}, (STRING, b"", {})),
        ({"type": "KEY_VALUE", "schema": '{"value": "", "key": {"a": [1, "ü"]}}'},
         (KEY_VALUE, b"\0\0\0\x0e" + '{"a":[1,"ü"]}'.encode() + b"\0\0\0\0", {})),
    ],
)  # fmt: skip
def test_uploaded_schema(given: Any, schema: GivenSchema) -> None:
    assert schema_of(given) == schema


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "the body must be an object with properties, schema, type"),
        ([], "the body must be an object"),
        ({"schema": RECORD}, "type: this field is required"),
        ({"type": 4}, "type: must be a text, not 4"),
        ({"type": "avro", "schema": RECORD}, "type: 'avro' is not stored: use one of STRING, JSON"),
        ({"type": "NONE"}, "type: 'NONE' is not stored"),
        ({"type": "BYTES"}, "type: 'BYTES' is not stored"),
        ({"type": "AUTO_CONSUME"}, "type: 'AUTO_CONSUME' is not stored"),
        ({"type": "AVRO", "schema": "record"}, "schema: a definition of this type is JSON, not 'record'"),
        ({"type": "AVRO"}, "schema: a definition of this type is JSON, not ''"),
        ({"type": "JSON", "schema": "[" * 10_000}, "schema: a definition of this type is JSON"),
        ({"type": "AVRO", "schema": {"type": "record"}}, "schema: must be a text, not {'type': 'record'}"),
        ({"type": "STRING", "schema": "\ud800"}, "schema: has half of a surrogate pair"),
        ({"type": "KEY_VALUE", "schema": '{"key": "\\ud800", "value": ""}'}, "schema.key: has half"),
        ({"type": "STRING", "properties": {"a": "\udfff"}}, "properties: has half of a surrogate pair"),
        ({"type": "STRING", "properties": {"a": 1}}, "properties.a: must be a text, not 1"),
        ({"type": "KEY_VALUE", "schema": '{"key": ""}'}, "schema: a definition of KEY_VALUE has `key` and `value`"),
        ({"type": "KEY_VALUE", "schema": "[]"}, "schema: a definition of KEY_VALUE has `key` and `value`"),
        ({"type": "AVRO", "schema": RECORD, "user": "x"}, "user: unknown field"),
    ],
)
def test_wrong_schema_is_refused_and_named(given: Any, reason: str) -> None:
    with pytest.raises(Refused) as info:
        schema_of(given)
    assert (info.value.status, info.value.reason[: len(reason)]) == (400, reason)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "AVRO", "schema": RECORD, "properties": {"a": "ü"}},
        {"type": "STRING", "schema": "", "properties": {}},
        {"type": "KEY_VALUE", "schema": '{"key":{"a":1},"value":""}', "properties": {}},
        {"type": "KEY_VALUE", "schema": '{"key":"","value":["ü"]}', "properties": {}},
    ],
)
def test_schema_is_shown_as_it_was_uploaded(given: dict[str, Any]) -> None:
    shown = shown_schema(schema_of(given), 3, 77)
    assert {"type": shown["type"], "schema": shown["data"], "properties": shown["properties"]} == given
    assert (shown["version"], shown["timestamp"]) == (3, 77)
    json.dumps(shown)


@pytest.mark.parametrize(
    "schema",
    [
        GivenSchema(AVRO, b"\xff", {}),
        GivenSchema(KEY_VALUE, b"", {}),
        GivenSchema(KEY_VALUE, b"\0\0\0\x05{}", {}),
        GivenSchema(KEY_VALUE, b"\xff\xff\xff\xff\0\0\0\0", {}),
        GivenSchema(KEY_VALUE, bytes(8) + b"x", {}),
        GivenSchema(KEY_VALUE, b"\0\0\0\x01x\0\0\0\0", {}),
    ],
)
def test_schema_of_a_client_that_is_no_text_is_not_shown_as_another_one(schema: GivenSchema) -> None:
    with pytest.raises(Refused, match="that are no text, is not offered here") as info:
        shown_schema(schema, 3, 77)
    assert info.value.status == 501
