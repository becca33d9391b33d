"""`oncelog check`: its result on a cluster that keeps the guarantee, and on one that does not."""

import asyncio
import json
import sys

import pytest

from oncelog.cli.check.command import publish_twice, report
from oncelog.cli.failures import Exit
from oncelog.cli.options import Output
from oncelog.client.client import AsyncClient
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
DEADLINE_S = 30


@pytest.mark.asyncio
async def test_check_stores_its_message_once_on_each_run(cluster: FakeCluster, client: AsyncClient) -> None:
    """A second check sends a new message: an earlier check must not make it pass or fail."""
    for count in (1, 2):
        seen = await publish_twice(client, "checked", 20)
        assert (seen["ok"], seen["duplicate"], seen["copies"]) == (True, True, 1)
        assert len(cluster.topic("checked").values()) == count


@pytest.mark.asyncio
async def test_check_prints_its_result_and_sets_the_exit_code(cluster: FakeCluster) -> None:
    """As the chart's test runs it."""
    words = (sys.executable, "-m", "oncelog.cli", "check", "--url", cluster.url, "-o", "json")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
    assert process.returncode == Exit.OK
    assert json.loads(output)["ok"] is True


@pytest.mark.parametrize("output", list(Output))
def test_check_fails_if_the_message_is_stored_twice(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    """The control: a log without deduplication must not pass."""
    seen: dict[str, object] = {"topic": "t", "producer_name": "p", "message_id": "1:1:0", "duplicate": False,
                               "copies": 2, "seconds": 0.1, "ok": False}  # fmt: skip
    assert report(seen, output) is Exit.FAILED
    assert ("FAILED" if output is Output.TABLE else '"ok": false') in capsys.readouterr().out
