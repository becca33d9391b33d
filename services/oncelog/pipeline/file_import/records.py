"""What an import keeps of its files, in a hidden topic beside the target, and what that makes of a further run. Pure.

Rules
- A file is known by its path below the source, so that the source may lie elsewhere another time. It is published by
  one producer of its own, `{name}/{path}`, and row n has sequence id n: whatever is repeated, the log takes a row once.
- Before the first row of a file is published, all of it was read once, and its size, time, checksum and number of rows
  are stored. A file that is another one later is refused: the rows that are published and those that are not would be
  of two files. Same size and time are taken for the same file, as rsync does; `checksum` reads all of it again.
- How columns make a message is stored, too, and counts until the file is done.
- A target that was deleted and made anew has lost what the records say it has: that is refused.
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
    """A file as it is now. path: below the source."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was when all of it was read. mapped: how columns make a message."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    rows: int
    mapped: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """check: to be read before anything of them is published; rest: of those that are known, to be published; done:
    how many are."""

    check: tuple[SourceFile, ...]
    rest: tuple[FileRecord, ...]
    done: int


def encode_begun(target_id: TopicId, files: Iterable[FileRecord]) -> bytes:
    """Stored before a row of these files is."""
    told = [{k: v for k, v in asdict(each).items() if k != "done"} for each in files]
    return json.dumps({"format": FORMAT, "kind": BEGUN, "target_id": target_id, "files": told}).encode()


def encode_done(paths: Iterable[str]) -> bytes:
    """Stored once every row of these files is."""
    return json.dumps({"format": FORMAT, "kind": DONE, "files": list(paths)}).encode()


def known_files(records: Iterable[bytes], target_id: TopicId) -> dict[str, FileRecord]:
    """{path: the file}, of all records in order. Raises CorruptEntry; Conflict where the target is another topic."""
    known: dict[str, FileRecord] = {}
    for data in records:
        told = _decoded(data)
        if told["kind"] == DONE:
            known |= {path: replace(known[path], done=True) for path in told["files"]}
            continue
        if told["target_id"] != target_id:
            raise Conflict(
                f"the target was deleted and made anew since this import began (id {told['target_id']} then, "
                f"{target_id} now), and the rows that it had are gone. Import under another name"
            )
        known |= {each["path"]: FileRecord(**each) for each in told["files"]}
    return known


def plan_import(
    known: Mapping[str, FileRecord], found: Iterable[SourceFile], mapped: str, *, checksum: bool
) -> ImportPlan:
    """What is to be done with the files that are there. Raises Conflict."""
    check, rest, done = [], [], 0
    by_path = {each.path: each for each in found}
    for path, record in sorted(known.items()):
        if not record.done and path not in by_path:
            raise Conflict(
                f"{path} was begun, is not done, and is not among the files now: put it back, or finish it with the "
                "options of then",
                field=path,
            )
    for path, now in sorted(by_path.items()):
        before = known.get(path)
        if before is None:
            check.append(now)
            continue
        if before.size != now.size:
            raise changed(path, f"it had {before.size} bytes and has {now.size}", done=before.done)
        if not before.done and before.mapped != mapped:
            raise Conflict(
                f"{path} was begun with other options, {before.mapped}, and is not done: finish it with those first",
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
    """Files that were read anew: those that nobody knows, and known ones that are not done. Raises Conflict."""
    new, rest = [], []
    for now in read:
        before = known.get(now.path)
        if before is None:
            new.append(now)
        elif before.sha256 != now.sha256:
            raise changed(now.path, "it has the same size and other content", done=before.done)
        elif not before.done:
            rest.append(replace(now, rows=before.rows))
    return new, rest


def changed(path: str, how: str, *, done: bool) -> Conflict:
    state = "is imported" if done else "was begun, so some of its rows are published"
    return Conflict(
        f"{path} {state}, and has changed since: {how}. Put it back as it was, and give what is new under another path",
        field=path,
    )


def producer_of(name: str, path: str) -> str:
    """The producer of a file; a path that is too long or cannot be printed is shortened, and told apart by a hash."""
    try:
        return check_producer_name(f"{name}/{path}")
    except InvalidName:
        shown = "".join(c for c in path[-_SHOWN_CHARACTERS:] if c.isprintable())
        return check_producer_name(f"{name}/{hashlib.sha256(path.encode()).hexdigest()[:_HASH_CHARACTERS]}…{shown}")


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError as error:
        raise CorruptEntry(f"the records of this import hold what it did not write: {error}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT or told.get("kind") not in {BEGUN, DONE}:
        raise CorruptEntry(f"the records of this import hold no record of format {FORMAT}: {data[:80]!r}")
    return told
