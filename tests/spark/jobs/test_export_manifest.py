"""Encoding of manifests, and the options of an export."""

import json
from pathlib import Path

import pytest

from oncelog.core.errors import CorruptEntry, InvalidArgument, LogHole
from oncelog.core.ids import TopicId
from oncelog_spark.export.manifest import (
    DataFile,
    ExportedPosition,
    ExportManifest,
    PartitionRange,
    check_dense,
    decode_manifest,
    encode_claim,
    encode_manifest,
    is_claim,
    manifest_name,
    manifest_number,
    run_name,
)
from oncelog_spark.export.options import export_location, export_options

MANIFEST = ExportManifest(
    7,
    "run=000007-x",
    1_700_000_000_000,
    (PartitionRange("public/default/flights-partition-1", TopicId("id"), 40, 60, 42),),
    (DataFile("run=000007-x/topic=a%2Fb/date=2026-03-01/f.parquet", "public/default/flights-partition-1", 9, 18, 42,
              59, "AB"),),
    {"public/default/flights-partition-1": ExportedPosition(TopicId("id"), 60),
     "gone": ExportedPosition(TopicId("old"), 3, gone=True)},
)  # fmt: skip
GIVEN = {"topics": "flights", "directory": "/data"}


def test_a_manifest_is_encoded_and_decoded() -> None:
    """Its field names are fixed, for other programs that read it."""
    data = encode_manifest(MANIFEST)
    assert decode_manifest(7, data) == MANIFEST
    told = json.loads(data)
    assert (told["ranges"][0]["from"], told["ranges"][0]["to"], told["files"][0]["rows"]) == (40, 60, 18)


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-20], lambda d: d.replace(b'"number": 7', b'"number": 8'), lambda d: d.replace(b"format", b"form"),
     lambda d: d.replace(b'"to": 60', b'"to": "x"'), lambda _: b"[]", lambda _: b""],
    ids=["torn", "another number", "no format", "no number", "a list", "empty"],
)  # fmt: skip
def test_a_file_that_is_not_a_manifest_is_refused(damage: object) -> None:
    """It could be taken for another export, or an empty one."""
    assert callable(damage)
    with pytest.raises(CorruptEntry, match="000000007"):
        decode_manifest(7, damage(encode_manifest(MANIFEST)))


def test_a_missing_manifest_is_named() -> None:
    """Readers would miss its files."""
    with pytest.raises(LogHole, match="000000001"):
        check_dense([ExportManifest(0, "a", 0), ExportManifest(2, "c", 0)])


def test_names_of_manifests_are_numbers() -> None:
    """A file with a similar name is not a manifest."""
    assert manifest_number(manifest_name(12)) == 12
    assert [manifest_number(name) for name in ("x.json", "12.json.crc", "12", ".12.json")] == [None] * 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": "flights"}, "option directory is required"),
        ({"directory": "/data"}, "set one of the options topic, topics, topicsPattern"),
        (GIVEN | {"directory": "s3a://bucket/data"}, "option directory must be a path, file:// or hdfs://, not s3a://"),
        (GIVEN | {"directory": "/data/{a,b}"}, r"option directory contains one of .* which make it a pattern"),
        (GIVEN | {"rowsPerFile": "0"}, "option rowsPerFile must be 1 to 100000000, not '0'"),
        (GIVEN | {"allowDataLoss": "maybe"}, "option allowDataLoss must be true or false"),
        (GIVEN | {"rowPerFile": "1"}, "unknown option rowPerFile; the most similar option is rowsPerFile"),
        (GIVEN | {"closedLedgers": "disk"}, "option closedLedgers must be one of storage, owner"),
    ],
)
def test_a_wrong_option_is_refused_with_its_limit(given: dict[str, str], message: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(InvalidArgument, match=message):
        export_options(given, {})


def test_a_directory_has_forms_for_spark_and_for_the_driver() -> None:
    """Both mean the same directory."""
    local = export_options(GIVEN | {"directory": "file:///data/x"}, {}).directory
    assert (local.path, local.uri) == ("/data/x", "file:///data/x")
    assert export_options(GIVEN | {"directory": "/data/x/"}, {}).directory == local
    there = export_options(GIVEN | {"directory": "hdfs://names:8020/data/x/"}, {}).directory
    assert (there.path, there.uri) == ("/data/x", "hdfs://names:8020/data/x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dbfs:/data/x", "a path, file:// or hdfs://, not dbfs"),
        ("S3A:/bucket/x", "not s3a"),
        ("C:/data", "a Windows path"),
        ("C:\\data", "a Windows path"),
        ("file://other.host/data", "a file on another host, other.host"),
        ("file:data", "has no absolute path"),
        ("hdfs:data", "has no absolute path"),
        ("/data/a\nb", "a control character"),
        ("~nobody-has-this-name/x", "cannot find the home directory"),
        ("  ", "option directory is required"),
    ],
)
def test_what_is_neither_a_path_nor_a_known_uri_is_refused(text: str, message: str) -> None:
    """`dbfs:/x` used to be a local directory of this name, which was lost with the machine."""
    with pytest.raises(InvalidArgument, match=message):
        export_location(text)


@pytest.mark.parametrize(
    ("text", "path", "uri"),
    [
        ("./dbfs:/x", f"{Path.cwd()}/dbfs:/x", f"file://{Path.cwd()}/dbfs:/x"),
        ("file:/data/x", "/data/x", "file:///data/x"),
        ("file://localhost/data/x", "/data/x", "file:///data/x"),
        ("FILE:///data/x#1", "/data/x#1", "file:///data/x#1"),
        ("hdfs:/data/x/", "/data/x", "hdfs:/data/x"),
        ("hdfs:///data/x#1", "/data/x#1", "hdfs:///data/x#1"),
        ("hdfs://names:8020", "/", "hdfs://names:8020/"),
        ("/data/at 10:00", "/data/at 10:00", "file:///data/at 10:00"),
    ],
)
def test_odd_paths_and_uris_keep_every_character(text: str, path: str, uri: str) -> None:
    """Text behind a `#` must not be dropped: that would be another directory."""
    found = export_location(text)
    assert (found.path, found.uri) == (path, uri)


def test_a_claim_is_valid_only_for_its_own_name() -> None:
    """A file that another program wrote, or that was copied, claims nothing."""
    run = run_name(42, "5f0c2d1e")
    assert is_claim(run, encode_claim(run))
    for name, data in (
        ("run=000043-5f0c2d1e", encode_claim(run)),
        ("run=2024", encode_claim("run=2024")),
        (run, b""),
        (run, b"[]"),
        (run, b"\xff"),
    ):
        assert not is_claim(name, data)


def test_an_export_covers_its_topics_with_their_partitions() -> None:
    """By name or pattern, without the sink's hidden topics."""
    named = export_options(GIVEN, {})
    assert [named.covers(f"public/default/{part}") for part in ("flights", "flights-partition-3", "flights-too")] == [
        True, True, False,
    ]  # fmt: skip
    matched = export_options({"topicsPattern": "other/space/.*", "directory": "/data"}, {})
    parts = ("other/space/a-partition-0", "public/default/a", "other/space/__sink.a.b.journal")
    assert [matched.covers(part) for part in parts] == [True, False, False]
