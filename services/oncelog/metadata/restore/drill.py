"""What a restore would change: the records that it would write now, compared with those in ZooKeeper.

A cluster that is in use changes while both are read. So what differs is read again, and only what differs twice in the
same way is told: with the same values, because a record that changes all the time differs each time.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.rebuild.difference import difference
from oncelog.core.rebuild.result import Rebuilt
from oncelog.metadata.restore.new_tree import NewTree
from oncelog.metadata.restore.noted_records import copied_records, names_in, noted_names
from oncelog.metadata_store.copies.record_walk import RecordWalk
from oncelog.metadata_store.records.registry import without_debt
from oncelog.metadata_store.records.topic_store import NameRecord
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession

#: Folders and records of which notes have each record as it is.
_NOTED = (paths.POLICIES, paths.TOMBSTONES, paths.STORAGE_COOKIES, paths.KEY_DATASET)
#: How many fields of a record a difference names, and how much of each value.
_FIELDS_MAX = 3
_VALUE_MAX = 80


async def live_records(session: StoreSession) -> dict[str, bytes]:
    """{path: value} of all lasting records. session: below the root of the era. Raises StoreUnavailable."""
    walk = RecordWalk(session, now_s=asyncio.get_running_loop().time)
    records: dict[str, bytes] = {}
    async for group in walk.records(None):
        records |= {each.path: each.value for each in group}
    return records


class Differing(NamedTuple):
    """message: for an operator. values: what is compared, beside the message, to know the same difference again."""

    message: str
    values: tuple[object, ...] = ()


def differences(rebuilt: Rebuilt, tree: NewTree, live: Mapping[str, bytes]) -> list[Differing]:
    """tree: what would be written. In a fixed order. A record in ZooKeeper that cannot be read is a difference."""
    unreadable: dict[str, str] = {}
    there_named, records = names_in(live, unreadable), copied_records(live, unreadable)
    found = [
        Differing(f"{path}: it cannot be read in ZooKeeper: {why}", (live[path],))
        for path, why in sorted(unreadable.items())
    ]
    found += [
        Differing(f"{one.name or one.topic_id}: {one.message}", (one.topic_id,))
        for one in difference(rebuilt, records, noted_names(there_named))
    ]
    found += _partitions(names_in(tree.records, {}), there_named)
    for place in _NOTED:
        there, written = _at(place, live), _at(place, tree.records)
        for path in sorted({*written, *there}):
            ours, theirs = written.get(path), _as_noted(path, there[path]) if path in there else None
            if ours is None:
                found.append(Differing(f"{path}: no storage node has noted it, so it would be missing", (theirs,)))
            elif theirs is None:
                if path not in paths.FOLDERS:
                    found.append(Differing(f"{path}: it would return; it is not there", (ours,)))
            elif ours != theirs:
                found.append(Differing(f"{path}: it would be another one{_fields(ours, theirs)}", (ours, theirs)))
    return found


def _fields(ours: bytes, theirs: bytes) -> str:
    """Which fields of two JSON objects differ, the first ones with their values; empty for other bytes."""
    try:
        mine, other = json.loads(ours), json.loads(theirs)
    except ValueError:
        return ""
    if not isinstance(mine, dict) or not isinstance(other, dict):
        return ""
    names = [name for name in sorted({*mine, *other}) if mine.get(name) != other.get(name)]
    told = [
        f"{name} would be {_short(mine.get(name))}; it is {_short(other.get(name))}" for name in names[:_FIELDS_MAX]
    ]
    return ": " + ", ".join(told) if told else ""


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"


def _partitions(written: Mapping[str, NameRecord], there: Mapping[str, NameRecord]) -> Iterator[Differing]:
    """Numbers of partitions that would be others, so that keys of producers went elsewhere. By full names."""
    for name in sorted({*written, *there}):
        ours, theirs = (each[name].partitions if name in each else 0 for each in (written, there))
        if ours != theirs:
            ids = tuple(each[name].topic_id if name in each else None for each in (written, there))
            yield Differing(f"{name}: it would have {ours} partitions; it has {theirs}", ids)


def _as_noted(path: str, value: bytes) -> bytes:
    """Without what changes before it is noted."""
    if not path.startswith(f"{paths.STORAGE_COOKIES}/"):
        return value
    try:
        return without_debt(value)
    except CorruptEntry:
        return value  # so it differs


def _at(place: str, records: Mapping[str, bytes]) -> dict[str, bytes]:
    """This record, and those below; of a folder itself nothing."""
    return {
        path: value
        for path, value in records.items()
        if path.startswith(f"{place}/") or (path == place and path not in paths.FOLDERS)
    }
