"""The bytes of messages, records and files: those that the tests of the formats already make.

These tests run once, and every `bytes` that crosses the border between product and tests is recorded: what a function
of the product returns to a test, and what the product passes to a fake of the tests. So no sample stands twice, and no
name of an encoder is written here. Properties of hypothesis are left out: their examples depend on the test's text.
"""

import dataclasses
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.tidy.source import ROOT

#: Modules of tests by name, wherever they lie.
SAMPLES = {
    "rpc": "test_encodings test_rpc_codec test_rpc_frames test_recovery_batches test_verify_entries",
    "messages": "test_entry test_batch test_columns test_message_id test_single_message test_batch_check",
    "snapshots": "test_dedup_snapshot test_snapshot_encoder test_subscriptions_snapshot test_recent_batches",
    "acks": "test_ack_format test_ack_set test_subscriptions_state test_index_set",
    "records": "test_records retention/test_ledger_pages test_id_claim test_idempotency",
    "disk": "test_segments test_directory test_directory_starts test_storage_node test_storage_fences",
    "zookeeper": (
        "test_stores_records test_stores_registry test_stores_repair test_stores_deletion test_damaged_records"
    ),
    "spark": "test_sink_records test_export_manifest test_import_records",
}
_BYTES_MAX = 2_000
#: A test that makes more values, by a model or at random, is recorded as one digest.
_VALUES_MAX = 100
_HEADING = "# bytes that crossed\n"
#: Random ids and times in records, and checksums of them.
_DRAWN = re.compile(rb'(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])|(?<!\d)1[6-9]\d{11}(?!\d)|(?<="crc32c": )\d+')


class Border:
    """A profile function that keeps the bytes which cross."""

    def __init__(self) -> None:
        self.crossed: set[bytes] = set()
        self._sides: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        other = frame.f_back
        if event not in {"call", "return"} or other is None:
            return
        sides = self._side(frame), self._side(other)
        if event == "return" and sides == ("services", "tests"):
            self.crossed.update(_bytes_in(value))
        elif event == "call" and sides == ("tests", "services"):
            code = frame.f_code
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                self.crossed.update(_bytes_in(frame.f_locals.get(name)))

    def _side(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in self._sides:
            self._sides[path] = next((s for s in ("services", "tests") if path.startswith(f"{ROOT}/{s}/")), "")
        return self._sides[path]


class Recording:
    """A plugin of pytest: lines for the bytes that crossed while its tests ran, and for tests that failed."""

    def __init__(self) -> None:
        self.lines: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        border = Border()
        sys.setprofile(None if hasattr(getattr(item, "obj", None), "hypothesis") else border)
        try:
            return (yield)
        except BaseException:
            self.lines.add(f"failed: {item.name}")
            raise
        finally:
            sys.setprofile(None)
            self.lines.update(_lines(item.name, border.crossed))


def encoded() -> Iterator[tuple[str, str]]:
    """A file for each kind, with a sorted line for each value: names of tests and encoders are not in it."""
    for kind in SAMPLES:
        command = (sys.executable, "-m", "tests.surface.encoded", kind)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert _HEADING in done.stdout, done.stdout + done.stderr
        yield f"encoded/{kind}.txt", done.stdout.rpartition(_HEADING)[2]


def main() -> int:
    """In a process of its own: pytest rewrites modules that nothing has imported before."""
    names = SAMPLES[sys.argv[1]].split()
    found = {name: sorted((ROOT / "tests").rglob(f"{name}.py")) for name in names}
    if missing := [name for name, paths in found.items() if not paths]:
        print(f"there are no tests called {', '.join(missing)}")
        return 1
    recording = Recording()
    words = ["-q", "--no-header", "-p", "no:cacheprovider", "-k", "not zookeeper]"]
    pytest.main([*words, *(str(path) for paths in found.values() for path in paths)], plugins=[recording])
    print(_HEADING + "\n".join(sorted(recording.lines)))
    return 0


def _lines(test: str, values: set[bytes]) -> Iterator[str]:
    plain = sorted({_DRAWN.sub(b"<drawn>", value) for value in values})
    if len(plain) > _VALUES_MAX:
        yield f"{len(plain)} values {_digest(plain)} {test}"
        return
    for value in map(_ordered, plain):
        yield value.hex() if len(value) <= _BYTES_MAX else f"{len(value)} bytes {_digest([value])}"


def _ordered(value: bytes) -> bytes:
    """The details of an error are a map, which protobuf writes in any order."""
    return bytes(sorted(value)) if b"\n\x0bowner_epoch" in value else value


def _digest(values: list[bytes]) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()


def _bytes_in(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value):
            yield bytes(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _bytes_in(each)
    elif dataclasses.is_dataclass(value) and hasattr(value, "data"):
        yield from _bytes_in(value.data)


if __name__ == "__main__":
    sys.exit(main())
