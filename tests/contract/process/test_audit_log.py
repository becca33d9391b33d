"""The file of the audit log: durable, bounded, of one process; and what happens if its disk is full."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.observing import audit_log
from oncelog.runtime.observing.audit_log import FILE_BYTES_MAX, FILES_MAX, AuditLog
from oncelog.runtime.observing.events import EventKind, EventRing
from tests.contract.noted import noted

pytestmark = pytest.mark.asyncio


def file_of(folder: Path, text: str, *, name: str = "audit.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def text_of(path: Path) -> str:
    return path.read_text()


def on_full_disk(folder: Path) -> Path:
    """A file of which no byte can be written."""
    path = folder / "audit.log"
    path.symlink_to("/dev/full")
    return path


def size_of(path: Path) -> int:
    return path.stat().st_size


def files_in(folder: Path) -> int:
    return len(list(folder.iterdir()))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in text_of(path).splitlines() if line]


async def test_line_is_in_the_file_and_in_the_log_of_the_process_at_every_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that ends inside a line, as after a crash, loses no further one."""
    path = file_of(tmp_path, '{"torn": ')
    log = AuditLog(EventRing("metadata"), path)
    assert logging.getLogger().level > logging.INFO
    await log.write("administrative change", {"role": "ann", "status": 204})
    await log.write("administrative change", {"role": "bob\n", "status": None})
    await log.close()
    torn, *written = text_of(path).splitlines()
    assert torn == '{"torn": '
    ann, bob = (json.loads(line) for line in written)
    assert (ann["logger"], ann["level"], ann["msg"]) == ("oncelog.audit", "info", "administrative change")
    assert (ann["role"], ann["status"], bob["role"], bob["status"]) == ("ann", 204, "bob\n", None)
    assert [vars(record)["fields"]["role"] for record in caplog.records] == ["ann", "bob\n"]
    assert log.counts == {"logged": 2}


async def test_files_are_renamed_at_their_limit_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(1, FILES_MAX):
        file_of(tmp_path, f"former {number}\n", name=f"audit.log.{number}")
    os.truncate(file_of(tmp_path, ""), FILE_BYTES_MAX - 10)
    log = AuditLog(EventRing("metadata"), path)
    await log.write("first", {})
    await log.write("second", {})
    await log.close()
    assert [line["msg"] for line in lines(path)] == ["first", "second"]
    assert size_of(Path(f"{path}.1")) == FILE_BYTES_MAX - 10
    assert text_of(Path(f"{path}.2")) == "former 1\n"
    assert text_of(Path(f"{path}.{FILES_MAX - 1}")) == f"former {FILES_MAX - 2}\n"
    assert files_in(tmp_path) == FILES_MAX + 1, "and the lock"


async def test_full_disk_is_reported_and_the_log_of_the_process_has_the_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute as an error, and each line in the count."""
    log = AuditLog(EventRing("metadata"), on_full_disk(tmp_path))
    for role in ("ann", "bob"):
        await log.write("administrative change", {"role": role})
    (failed,) = noted(log.events, EventKind.AUDIT_FAILED)
    assert "No space left on device" in str(failed.fields["reason"])
    assert (failed.level, failed.count, log.counts["missing_in_file"], log.counts["logged"]) == ("error", 2, 2, 2)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [
        "a line is missing in the audit file; the log of the process has it"
    ]
    await log.close()


async def test_lines_that_wait_for_the_disk_are_bounded(tmp_path: Path) -> None:
    """And those that fit are written, in order."""
    path = tmp_path / "audit.log"
    log = AuditLog(EventRing("metadata"), path)
    for number in range(audit_log.WAITING_MAX + 5):
        log.begin("change", {"number": number})
    assert log.counts["missing_in_file"] == 5
    await asyncio.wait(log._waiting)
    await log.close()
    assert [line["number"] for line in lines(path)] == list(range(audit_log.WAITING_MAX))


async def test_file_of_another_process_or_without_a_folder_is_refused(tmp_path: Path) -> None:
    """At the start, with the name of the setting."""
    log = AuditLog(EventRing("metadata"), tmp_path / "audit.log")
    with pytest.raises(InvalidArgument, match=r"ONCELOG_AUDIT_FILE.*another process writes it: give each process"):
        AuditLog(EventRing("metadata"), tmp_path / "audit.log")
    await log.close()
    again = AuditLog(EventRing("metadata"), tmp_path / "audit.log")
    await again.close()
    with pytest.raises(InvalidArgument, match=r"ONCELOG_AUDIT_FILE.*No such file"):
        AuditLog(EventRing("metadata"), tmp_path / "missing" / "audit.log")
