"""The records that an import keeps of its files, in a hidden topic beside the target, and what a further run does.
Pure.

Rules
- A file is identified by its path below the source, so the source may be mounted elsewhere another time. It is
  published by a producer of its own, `{name}/{path}`, and row n has sequence id n: the log stores each row once,
  however often it is sent.
- Before the first row of a file is published, the whole file is read once, and its size, time, checksum and number of
  rows are stored. A file that has changed later is refused: its published and unpublished rows would come from two
  files. A file with the same size and time is taken for unchanged, as by rsync; `checksum` reads the whole file again.
- The mapping of columns to messages is stored, too, and stays the same until the file is done.
- A target that was deleted and created again lacks rows that the records list: the import is refused.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from oncelog.core.errors import Conflict, CorruptEntry, InvalidName
from oncelog.core.ids import TopicId
from oncelog.core.names import check_producer_name

FORMAT = 1
BEGUN, DONE = "import begun", "import done"
_HASH_CHARACTERS = 24
_SHOWN_CHARACTERS = 80


class SourceFile(NamedTuple):
    """A file in its current state. path: below the source."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file in its state when it was checked. mapped: the mapping of columns to messages."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    rows: int
    mapped: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """check: files to read before anything of them is published. rest: files with a record, still to be published.
    done: number of files that are published."""

    check: tuple[SourceFile, ...]
    rest: tuple[FileRecord, ...]
    done: int


def encode_begun(target_id: TopicId, files: Iterable[FileRecord]) -> bytes:
    """The record that is stored before the first row of these files."""
    fields = [{k: v for k, v in asdict(each).items() if k != "done"} for each in files]
    return json.dumps({"format": FORMAT, "kind": BEGUN, "target_id": target_id, "files": fields}).encode()


def encode_done(paths: Iterable[str]) -> bytes:
    """The record that is stored once all rows of these files are stored."""
    return json.dumps({"format": FORMAT, "kind": DONE, "files": list(paths)}).encode()


def known_files(records: Iterable[bytes], target_id: TopicId) -> dict[str, FileRecord]:
    """{path: the file}, from all records in order. Raises CorruptEntry; Conflict where the target is another topic."""
    known: dict[str, FileRecord] = {}
    for data in records:
        fields = _decoded(data)
        if fields["kind"] == DONE:
            known |= {path: replace(known[path], done=True) for path in fields["files"]}
            continue
        if fields["target_id"] != target_id:
            raise Conflict(
                f"the target was deleted and created anew since this import began (id {fields['target_id']} then, "
                f"{target_id} now), and its rows are gone. Import under another name"
            )
        known |= {each["path"]: FileRecord(**each) for each in fields["files"]}
    return known


def plan_import(
    known: Mapping[str, FileRecord], found: Iterable[SourceFile], mapped: str, *, checksum: bool
) -> ImportPlan:
    """What to do with the files that exist now. Raises Conflict."""
    check, rest, done = [], [], 0
    by_path = {each.path: each for each in found}
    for path, record in sorted(known.items()):
        if not record.done and path not in by_path:
            raise Conflict(
                f"{path} is published in part, but is not among the files any more: restore it, or finish it with the "
                "options used before",
                field=path,
            )
    for path, now in sorted(by_path.items()):
        before = known.get(path)
        if before is None:
            check.append(now)
            continue
        if before.size != now.size:
            raise changed(path, f"its size was {before.size} bytes and is now {now.size}", done=before.done)
        if not before.done and before.mapped != mapped:
            raise Conflict(
                f"{path} is published in part, with other options, {before.mapped}: finish it with those first",
                field=path,
            )
        if checksum or before.mtime_ns != now.mtime_ns:
            check.append(now)
        elif before.done:
            done += 1
        else:
            rest.append(before)
    return ImportPlan(tuple(check), tuple(rest), done)


def compare_read(
    known: Mapping[str, FileRecord], read: Iterable[FileRecord]
) -> tuple[list[FileRecord], list[FileRecord]]:
    """Of files that were read now: those without a record, and those with a record that are not done. Raises
    Conflict."""
    new, rest = [], []
    for now in read:
        before = known.get(now.path)
        if before is None:
            new.append(now)
        elif before.sha256 != now.sha256:
            raise changed(now.path, "it has the same size, but other content", done=before.done)
        elif not before.done:
            rest.append(replace(now, rows=before.rows))
    return new, rest


def changed(path: str, how: str, *, done: bool) -> Conflict:
    state = "is imported" if done else "is published in part"
    return Conflict(
        f"{path} {state}, and has changed since: {how}. Restore it, and import the new content under another path",
        field=path,
    )


def producer_of(name: str, path: str) -> str:
    """The producer of a file; a path that is too long or not printable is shortened, and gets a hash."""
    try:
        return check_producer_name(f"{name}/{path}")
    except InvalidName:
        shown = "".join(c for c in path[-_SHOWN_CHARACTERS:] if c.isprintable())
        return check_producer_name(f"{name}/{hashlib.sha256(path.encode()).hexdigest()[:_HASH_CHARACTERS]}…{shown}")


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise CorruptEntry(f"the records of this import contain something else: {error}") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT or fields.get("kind") not in {BEGUN, DONE}:
        raise CorruptEntry(f"the records of this import contain a record that is not of format {FORMAT}: {data[:80]!r}")
    return fields
