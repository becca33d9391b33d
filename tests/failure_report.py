"""What a failed test leaves to look at: the logs that were written while it ran, by name, each with its last lines.

CI keeps what is printed and no files, so the last lines belong into the report.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

#: of each log
LINES_MAX = 15
LOGS_MAX = 12
_BASE = pytest.StashKey[Path]()


@pytest.fixture(scope="session", autouse=True)
def _where_files_are(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> None:
    pytestconfig.stash[_BASE] = tmp_path_factory.getbasetemp()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    base = item.config.stash.get(_BASE, None)
    if report.failed and base is not None:
        report.sections.append((f"logs of {item.nodeid}, kept under {base}", "\n".join(last_lines(base, call.start))))
    return report


def last_lines(base: Path, since: float) -> Iterator[str]:
    """The logs below `base` that were written after `since`, in seconds since 1970; of many, the newest."""
    written = [path for path in base.rglob("*.log") if path.is_file() and path.stat().st_mtime >= since]
    if not written:
        yield "none was written"
    written.sort(key=lambda path: -path.stat().st_mtime)
    for path in written[:LOGS_MAX]:
        yield f"--- {path}"
        yield from path.read_text(errors="replace").splitlines()[-LINES_MAX:]
    yield from (f"--- {path}" for path in written[LOGS_MAX:])
