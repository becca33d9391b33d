"""Whether a noted record can be read: what cannot is no state of the record, so nothing takes it for one.

Rules
- A record is damaged if its own codec cannot read it (hazard damaged-record-is-noted).
- A record of a newer format is not damaged. A newer process wrote it, and it is noted: it is the record's last state.
- The cluster's record is not judged here: who reads it raises.
"""

from collections.abc import Callable

from oncelog.core.errors import CorruptEntry
from oncelog.metadata_store.keys.idempotency_keys import decode_dataset
from oncelog.metadata_store.records.json_records import is_of_newer_format
from oncelog.metadata_store.records.policies import decode_policies
from oncelog.metadata_store.records.registry import decode_cookie
from oncelog.metadata_store.records.topic_store import decode_name
from oncelog.metadata_store.session import paths

_FOLDERS = (
    (paths.NAMES, decode_name),
    (paths.STORAGE_COOKIES, decode_cookie),
    (paths.KEY_DATASET, decode_dataset),
    (paths.POLICIES, decode_policies),
)


def noted_decoder(path: str) -> Callable[[bytes], object] | None:
    """Of a noted record; it raises CorruptEntry. None: the record has no content, or is that of the cluster."""
    tenant = path.startswith(f"{paths.NAMESPACES}/") and path.count("/", len(paths.NAMESPACES)) == 1
    if tenant or not paths.is_noted(path):
        return None
    return next((decode for folder, decode in _FOLDERS if path.startswith(folder)), None)


def damage_of(path: str, data: bytes) -> str | None:
    """Why this noted record is damaged; None: it is not. Counted in `damaged_records`."""
    decode = noted_decoder(path)
    if decode is None:
        return None
    try:
        decode(data)
    except CorruptEntry as error:
        return None if is_of_newer_format(data) else error.message
    return None
