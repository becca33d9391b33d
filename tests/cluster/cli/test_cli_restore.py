"""`oncelog admin backup restore`, `drill` and `rights`: what they ask, what they show, and their exit codes."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.core.era import FIRST_ERA
from oncelog.core.ids import TopicId
from oncelog.core.rebuild.restore_events import RestoreStep
from oncelog.core.rebuild.result import Review, ReviewReason
from oncelog.metadata.rest.recovering.restore import view_of
from oncelog.metadata.restore.progress import ReportedNode, RestoreProgress, RestoreState
from oncelog.metadata_store.copies.copy_file import MAGIC, CopiedRecord, CopyHeader, CopyWriter
from oncelog.metadata_store.copies.copy_folder import name_by_content
from tests.cluster.cli.recorded_rest import RecordingServer

RESTORE, DRILL, RIGHTS = (f"/admin/v2/cluster/{name}" for name in ("restore", "drill", "rights"))
NODE = "a" * 32
RUNNING = RestoreProgress(RestoreState.RUNNING, RestoreStep.WRITE, era=2, restore_id="1" * 32, records=9)
DONE = replace(
    RUNNING, state=RestoreState.DONE, step=RestoreStep.DONE, topics=12_345, ledgers=100_377,
    nodes=[ReportedNode("b" * 32, "n1:6652", "used"), ReportedNode(NODE, "n2:6652", "silent", "connection refused")],
)  # fmt: skip
REVIEWED = Review(TopicId("0f" * 16), "public/default/orders", ReviewReason.GAP, "ledgers 4711 to 4713 are missing")


def tells(rest: RecordingServer, path: str, *told: RestoreProgress, before: RestoreProgress | None = None) -> None:
    """Answers, one after the other: what was before, to the request, and to each look. The last one stays."""
    shown: list[tuple[int, object]] = [
        (200, view_of(progress).model_dump(mode="json")) for progress in (before or RestoreProgress(), *told)
    ]
    rest.answers[path], *rest.later[path] = shown


def backup(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    result = CliRunner().invoke(app, ["admin", "backup", *words, "--admin-url", rest.url])
    return result.exit_code, result.stdout, result.stderr


def test_restore_is_followed_to_its_end(rest: RecordingServer) -> None:
    """One request begins it; a missing node and what was found are shown."""
    tells(rest, RESTORE, RUNNING, DONE)
    code, shown, told = backup(rest, "restore", "--nodes", "n1:6652,n2:6652", "--absent", NODE, "--accept", "all", "-y")
    assert code == 0
    assert [asked[:2] for asked in rest.asked] == [("GET", RESTORE), ("POST", RESTORE), ("GET", RESTORE)]
    assert rest.asked[1][2] == {
        "nodes": ["n1:6652", "n2:6652"], "absent": [NODE], "accept": ["all"], "take_over": False, "ends_era": 0,
        "dry_run": False,
    }  # fmt: skip
    assert "era 2: write, 0 of 9 records" in told
    assert "12,345 topics, 100,377 ledgers" in shown
    assert f"1 used; {NODE} silent (connection refused)" in shown


def test_copy_that_is_outside_of_the_cluster_is_given_to_it_before_the_restore(
    rest: RecordingServer, tmp_path: Path
) -> None:
    """Whole, and under the name of its content. What is no copy is refused before anything is asked."""
    file = tmp_path / "records"
    file.write_bytes(MAGIC)
    code, _, told = backup(rest, "restore", str(file), "-y")
    assert (code, rest.asked) == (1, [])
    assert "half a copy" in told
    with file.open("wb") as out:
        writer = CopyWriter(CopyHeader("c" * 32, FIRST_ERA, 7, 1_764_200_000_000), None, out.write)
        writer.add([CopiedRecord("/tombstones/a", os.urandom(200_000))])
        writer.finish()
    name = name_by_content(CopyHeader("c" * 32, FIRST_ERA, 7, 1_764_200_000_000), file.read_bytes())
    put = f"/admin/v2/backups/{name}?nodes=n1%3A6652&nodes=n2%3A6652"
    rest.answers[put] = (409, {"code": "conflict", "detail": "the copy is of another cluster"})
    code, _, told = backup(rest, "restore", str(file), "--nodes", "n1:6652,n2:6652", "-y")
    assert (code, [asked[0] for asked in rest.asked]) == (1, ["PUT"])
    assert "of another cluster" in told
    rest.answers[put] = (200, {"name": name, "nodes": ["b" * 32, NODE]})
    tells(rest, RESTORE, DONE)
    code, _, told = backup(rest, "restore", str(file), "--nodes", "n1:6652,n2:6652", "-y")
    assert code == 0
    given, begun = ("PUT", put, file.read_bytes()), ("POST", RESTORE, rest.asked[-1][2])
    assert rest.asked[1:] == [given, ("GET", RESTORE, None), begun]
    assert f"stored the copy as {name} on 2 storage nodes" in told


def test_restore_changes_nothing_without_a_confirmation(rest: RecordingServer) -> None:
    """A script must say --yes; a dry run needs none."""
    code, _, told = backup(rest, "restore")
    assert code != 0
    assert "--yes" in told
    assert rest.asked == []
    tells(rest, RESTORE, replace(DONE, dry_run=True, era=0))
    assert backup(rest, "restore", "--dry-run")[0] == 0


def test_refused_restore_says_what_to_do(rest: RecordingServer) -> None:
    """With what must be accepted. The exit code tells it to a script."""
    refused = replace(DONE, state=RestoreState.REFUSED, message="repeat with --accept all", reviews=[REVIEWED])
    tells(rest, RESTORE, refused)
    code, shown, _ = backup(rest, "restore", "-y")
    assert code == 1
    assert "repeat with --accept all" in shown
    assert "public/default/orders: a ledger of the chain is missing: ledgers 4711 to 4713 are missing" in shown


def test_restore_goes_on_when_its_metadata_service_starts_again(rest: RecordingServer) -> None:
    """The claim ends the service that made it. The next one does not know the work, but the claimed era."""
    interrupted = RestoreProgress(RestoreState.INTERRUPTED, RestoreStep.CLAIM, era=2, restore_id="1" * 32)
    tells(rest, RESTORE, RUNNING, interrupted, DONE)
    assert backup(rest, "restore", "-y")[0] == 0
    assert [asked[0] for asked in rest.asked] == ["GET", "POST", "GET", "POST"]


STARTED = RestoreProgress(RestoreState.RUNNING)
LOST, FORMER, NEW = RestoreProgress(), RestoreProgress(era=1, restore_id="0" * 32), replace(RUNNING, state=DONE.state)


@pytest.mark.parametrize(
    ("before", "followed", "after", "done"),
    [
        pytest.param(LOST, RUNNING, NEW, True, id="followed"),
        pytest.param(LOST, STARTED, NEW, True, id="too fast to be followed"),
        pytest.param(FORMER, STARTED, NEW, True, id="an older ZooKeeper"),
        pytest.param(FORMER, STARTED, FORMER, False, id="nothing claimed in an older ZooKeeper"),
        pytest.param(LOST, STARTED, LOST, False, id="nothing claimed"),
        pytest.param(replace(LOST, state=RestoreState.FAILED), STARTED, FORMER, False, id="no era was told before"),
    ],
)
def test_restore_that_nobody_remembers_is_done_if_its_era_is_committed(
    rest: RecordingServer, before: RestoreProgress, followed: RestoreProgress, after: RestoreProgress, done: bool
) -> None:
    """Otherwise it was never claimed. It is not begun again: that would be another era."""
    tells(rest, RESTORE, followed, replace(after, state=RestoreState.IDLE), before=before)
    found, shown, told = backup(rest, "restore", "-y")
    assert (found == 0) is done, told
    assert ("done, era 2" in shown) is done
    assert [asked[0] for asked in rest.asked] == ["GET", "POST", "GET"]


def test_restore_that_has_nothing_to_do_says_so_and_counts_nothing(rest: RecordingServer) -> None:
    """A tired operator reads zeros as a loss."""
    tells(rest, RESTORE, RestoreProgress(RestoreState.DONE, RestoreStep.DONE, era=3, message="already restored"))
    code, shown, _ = backup(rest, "restore", "-y")
    assert code == 0
    assert "already restored" in shown
    assert "found" not in shown
    assert "nodes" not in shown
    tells(rest, RESTORE, STARTED, replace(NEW, state=RestoreState.IDLE), before=LOST)
    code, shown, _ = backup(rest, "restore", "-y")
    assert code == 0
    assert "another metadata service has finished this restore" in shown
    assert "found    0" not in shown


def test_era_that_a_take_over_ends_is_typed(rest: RecordingServer) -> None:
    """--yes does not stand for it: the metadata service compares it."""
    tells(rest, RESTORE, DONE)
    assert backup(rest, "restore", "--take-over", "--ends-era", "3", "-y")[0] == 0
    assert isinstance(rest.asked[1][2], dict)
    assert (rest.asked[1][2]["take_over"], rest.asked[1][2]["ends_era"]) == (True, 3)


def test_silence_of_the_metadata_service_is_told_once(rest: RecordingServer) -> None:
    """It starts again after the claim, which takes some seconds."""
    tells(rest, RESTORE, RUNNING, RUNNING, DONE)
    away = (503, {"code": "service_unavailable", "detail": "no cluster yet"})
    rest.later[RESTORE][1:1] = [away, away]
    code, _, told = backup(rest, "restore", "-y")
    assert code == 0
    assert told.count("will retry") == 1


@pytest.mark.parametrize("command", ["restore --dry-run", "drill", "rights", "list", "create", "rebuild /topics/a -y"])
def test_command_for_an_outage_does_not_advise_to_start_a_cluster(rest: RecordingServer, command: str) -> None:
    """A second cluster is the last thing to do now."""
    away: tuple[int, object] = (503, {"code": "service_unavailable", "detail": "this metadata service has no cluster"})
    for path in (RESTORE, DRILL, RIGHTS, "/admin/v2/backups", "/admin/v2/cluster/records/rebuild"):
        rest.answers[path] = away
    code, _, told = backup(rest, *command.split())
    assert code == 4
    assert "has no cluster" in told
    assert "standalone" not in told


def test_drill_fails_when_a_restore_would_change_something(rest: RecordingServer) -> None:
    """For a CronJob. The answer of REST is there for programs."""
    tells(rest, DRILL, replace(DONE, dry_run=True))
    assert backup(rest, "drill")[0] == 0
    differs = replace(DONE, dry_run=True, differences=["topic public/default/orders: ledger 7 would be missing"])
    tells(rest, DRILL, differs)
    code, shown, _ = backup(rest, "drill", "-o", "json")
    assert code == 1
    assert json.loads(shown)["differences"] == differs.differences


def test_rights_are_shown_before_they_are_confirmed(rest: RecordingServer) -> None:
    """Without --confirm nothing is changed."""
    grant = {"namespace": "public/default", "role": "ann", "rights": ["produce"], "now": []}
    rest.answers[RIGHTS] = (200, {"state": "closed", "closed": [grant]})
    rest.answers[f"{RIGHTS}/confirm"] = (200, {"state": "open", "closed": [grant]})
    code, shown, _ = backup(rest, "rights")
    assert code == 0
    assert "ann" in shown
    assert backup(rest, "rights", "--confirm")[0] != 0
    assert [asked[0] for asked in rest.asked] == ["GET", "GET"]
    code, shown, _ = backup(rest, "rights", "--confirm", "--yes")
    assert code == 0
    assert "closed" not in shown
    assert rest.asked[-1][:2] == ("POST", f"{RIGHTS}/confirm")


def test_restore_that_another_command_has_begun_says_so(rest: RecordingServer) -> None:
    """Two operators: both see it end, and one of them knows that it is not his."""
    mine = replace(RUNNING, by="ann", started_ms=1_764_200_000_000)
    tells(rest, RESTORE, replace(mine, joined=1), replace(DONE, by="ann", started_ms=mine.started_ms, joined=1))
    code, shown, _ = backup(rest, "restore", "-y")
    assert code == 0
    assert "begun    by another command, of ann, at 23:33:20 UTC: this one has followed it" in shown
    tells(rest, RESTORE, mine, replace(DONE, by="ann", joined=1))
    assert "another command" not in backup(rest, "restore", "-y")[1], "the one that has begun it"


def test_restore_that_another_one_has_beaten_is_not_done(rest: RecordingServer) -> None:
    """Its metadata service has ended, because the era is that of another restore."""
    tells(rest, RESTORE, RUNNING, RestoreProgress(era=2, restore_id="2" * 32))
    code, shown, _ = backup(rest, "restore", "--accept", "all", "-y")
    assert code == 1
    assert "state    refused" in shown
    assert "another restore has won, and made era 2" in shown
