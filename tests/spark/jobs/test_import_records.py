"""The records that an import keeps of its files: new, begun, done or changed, and which are refused."""

from dataclasses import replace

import pytest

from oncelog.core.errors import Conflict, CorruptEntry, InvalidArgument
from oncelog.core.ids import TopicId
from oncelog.core.names import check_producer_name
from oncelog_spark.file_import.files import open_source
from oncelog_spark.file_import.options import import_options
from oncelog_spark.file_import.records import (
    FileRecord,
    SourceFile,
    compare_read,
    encode_begun,
    encode_done,
    known_files,
    plan_import,
    producer_of,
)

TARGET = TopicId("target")
A = FileRecord("a.csv", 10, 1, "hash a", 5, "as json")
B = FileRecord("b/b.csv", 20, 2, "hash b", 6, "as json")
GIVEN = {"source": "/in", "topic": "t", "name": "landing"}


def found(record: FileRecord, **more: int) -> SourceFile:
    now = replace(record, **more)  # type: ignore[arg-type]
    return SourceFile(now.path, now.size, now.mtime_ns)


def known(*records: bytes) -> dict[str, FileRecord]:
    return known_files(records, TARGET)


def test_files_are_new_then_begun_then_done() -> None:
    """A begun file is finished, a done one is skipped."""
    both = [found(A), found(B)]
    assert plan_import({}, both, "as json", checksum=False).check == tuple(both)
    after = known(encode_begun(TARGET, [A]), encode_begun(TARGET, [B]), encode_done([A.path]))
    assert after == {A.path: replace(A, done=True), B.path: B}
    sorted_ = plan_import(after, both, "as json", checksum=False)
    assert (sorted_.check, sorted_.rest, sorted_.done) == ((), (B,), 1)


def test_a_file_with_another_time_or_on_demand_is_read_again() -> None:
    """A file with the same content is the same file; it continues, or stays done."""
    after = known(encode_begun(TARGET, [A, B]), encode_done([A.path]))
    touched = [found(A, mtime_ns=9), found(B, mtime_ns=9)]
    assert plan_import(after, touched, "as json", checksum=False).check == tuple(touched)
    assert len(plan_import(after, [found(A), found(B)], "as json", checksum=True).check) == 2
    now = replace(B, mtime_ns=9)
    assert compare_read(after, [replace(A, mtime_ns=9), now]) == ([], [now])


def test_a_file_that_changed_is_refused_whether_begun_or_done() -> None:
    """By its size immediately, by its content where the size is the same."""
    after = known(encode_begun(TARGET, [A, B]), encode_done([A.path]))
    with pytest.raises(
        Conflict, match=r"a\.csv is imported, and has changed since: its size was 10 bytes and is now 11"
    ):
        plan_import(after, [found(A, size=11), found(B)], "as json", checksum=False)
    with pytest.raises(Conflict, match=r"b/b\.csv is published in part, .* other content"):
        compare_read(after, [replace(B, mtime_ns=9, sha256="other")])


def test_a_begun_file_must_be_finished_as_it_was_begun() -> None:
    """With the same mapping, and it must still exist; a done file may be deleted."""
    after = known(encode_begun(TARGET, [A, B]), encode_done([A.path]))
    with pytest.raises(Conflict, match=r"b/b\.csv is published in part, with other options, as json"):
        plan_import(after, [found(A), found(B)], "other", checksum=False)
    with pytest.raises(Conflict, match=r"b/b\.csv is published in part, but is not among the files"):
        plan_import(after, [found(A)], "as json", checksum=False)
    assert plan_import(after, [found(B)], "as json", checksum=False).rest == (B,)


def test_a_recreated_target_and_foreign_records_are_refused() -> None:
    """The rows in the records are gone."""
    with pytest.raises(Conflict, match="deleted and created anew"):
        known_files([encode_begun(TopicId("old"), [A])], TARGET)
    for data in (b"hello", b"{}", b"[]", b'{"format": 2, "kind": "import done", "files": []}'):
        with pytest.raises(CorruptEntry):
            known(data)


def test_each_file_has_a_producer_of_its_own() -> None:
    """Also long paths, and paths that cannot be printed."""
    paths = ["a.csv", "b/a.csv", "x" * 300 + "/1", "y" + "x" * 299 + "/1", "tab\tin it", "tab in it", "é" * 200]
    names = [producer_of("landing", path) for path in paths]
    assert len(set(names)) == len(paths)
    assert [check_producer_name(name) for name in names] == names
    assert names[0] == "landing/a.csv"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "/in", "topic": "t"}, "option name is required"),
        ({"source": "/in", "name": "x"}, "option topic is required"),
        ({"topic": "t", "name": "x"}, "option source is required"),
        (GIVEN | {"format": "json"}, "option format must be one of parquet, csv, not 'json'"),
        (GIVEN | {"delimiter": ";"}, "option delimiter is for format=csv"),
        (GIVEN | {"format": "csv", "delimiter": "ab"}, "option delimiter must be one character"),
        (GIVEN | {"format": "csv", "delimiter": '"'}, "option delimiter must be one character"),
        (GIVEN | {"name": "x" * 101}, "option name has 101 characters, more than the limit of 100"),
        (GIVEN | {"topic": "a/b"}, "option topic: "),
        (GIVEN | {"properties": "a,b,a"}, "option properties names a column twice"),
        (GIVEN | {"keys": "a"}, "unknown option keys; the most similar option is key"),
        (GIVEN | {"sendTimeoutSeconds": "0"}, "option sendTimeoutSeconds must be 1 to 86400"),
    ],
)
def test_a_wrong_option_is_refused_with_its_limit(given: dict[str, str], message: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(InvalidArgument, match=message):
        import_options(given, {})


def test_a_tab_may_be_written_as_backslash_t() -> None:
    """It is hard to type."""
    assert import_options(GIVEN | {"format": "csv", "delimiter": "\\t"}, {}).mapped.delimiter == "\t"
    assert import_options(GIVEN, {}).glob == "*.parquet"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("dbfs:/in", "dbfs:/in"),
        ("s3://bucket/in/", "s3://bucket/in"),
        ("file:///in", "/in"),
        ("file:/in#1", "/in#1"),
        ("/in", "/in"),
    ],
)
def test_a_source_is_a_path_or_a_uri(source: str, read: str) -> None:
    """`dbfs:/in` is not a local directory: Arrow decides whether it knows the scheme."""
    assert import_options(GIVEN | {"source": source}, {}).source == read


def test_a_scheme_that_arrow_does_not_know_is_refused() -> None:
    """With the option's name."""
    with pytest.raises(InvalidArgument, match="option source: cannot read dbfs:/in"):
        open_source("dbfs:/in")
