"""The keys that encrypt copies of ZooKeeper's records: ONCELOG_BACKUP_KEY_FILE.

One key a line, 64 hexadecimal digits; empty lines and lines that begin with # are skipped. The first key encrypts, all
of them decrypt. So a new key is added as the first line, and an old one is removed when no copy needs it any more.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from oncelog.core.errors import InvalidArgument

KEYS_MAX = 16
_KEY_DIGITS = 64
_FILE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class CopyKey:
    """secret: 32 bytes, for AES-256-GCM."""

    secret: bytes

    @property
    def key_id(self) -> str:
        """Names the key without telling it: 16 hexadecimal digits."""
        return sha256(b"oncelog copy key" + self.secret).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"CopyKey({self.key_id})"


def read_keys(path: Path | None) -> tuple[CopyKey, ...]:
    """The keys, the newest first; () without a file. Raises InvalidArgument, which never shows a key."""
    if path is None:
        return ()
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        text = content.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise InvalidArgument(f"cannot read the keys of copies in {path}: {reason}", field="backup_key_file") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    keys = tuple(_key(path, number, line) for number, line in lines if line and not line.startswith("#"))
    if not keys or len(keys) > KEYS_MAX or len(content) > _FILE_BYTES_MAX:
        message = f"{path} has {len(keys)} keys: write 1 to {KEYS_MAX}, one a line (openssl rand -hex 32)"
        raise InvalidArgument(message, field="backup_key_file", limit=KEYS_MAX)
    return keys


def _key(path: Path, number: int, line: str) -> CopyKey:
    if len(line) != _KEY_DIGITS or not set(line.lower()) <= set("0123456789abcdef"):
        message = (
            f"line {number} of {path} is no key: a key has {_KEY_DIGITS} hexadecimal digits (openssl rand -hex 32)"
        )
        raise InvalidArgument(message, field="backup_key_file")
    return CopyKey(bytes.fromhex(line))
