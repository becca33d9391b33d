"""The command of the proof, without a cluster: nothing of it can be played here."""

import argparse
import json
from pathlib import Path

import pytest

from oncelog_doors.proof import command
from oncelog_doors.proof.pulsar.histories import HISTORIES


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers(dest="command"))
    return command.run(parser.parse_args(["pulsar-proof", *words]))


def test_without_a_client_nothing_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    """Each history has a row that says so."""
    assert run("--client", "java", "go", "-o", "json") == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert not found["proven"]
    assert {row["passed"] for row in found["rows"]} == {None}
    expected = {(each.defect, client) for each in HISTORIES for client in each.clients if client != "python"}
    assert {(row["defect"], row["client"]) for row in found["rows"]} == expected
    for client in ("java", "go"):
        assert f"WARNING: the {client} client is NOT RUN" in said.err


def test_only_the_histories_of_a_defect_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "B8", "D4", "--client", "java", "-o", "json") == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["defect"] for row in rows] == ["D4", "B1 B8"]


def test_folder_of_an_earlier_run_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its topics would be those of another proof."""
    (tmp_path / "cluster").mkdir()
    assert run("--data", str(tmp_path)) == 2
    assert f"--data {tmp_path} is not empty" in capsys.readouterr().err
