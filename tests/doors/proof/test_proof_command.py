"""The commands of the proofs, without a cluster: nothing of them can be played here."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog_doors.proof import command
from oncelog_doors.proof.histories import ClientKind, Proof
from oncelog_doors.proof.kafka.proof import KAFKA
from oncelog_doors.proof.pulsar.proof import PULSAR


def run(proof: Proof, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers(dest="command"), proof)
    return command.run(parser.parse_args([f"{proof.protocol}-proof", *words]))


@pytest.mark.parametrize("proof", [PULSAR, KAFKA], ids=lambda proof: proof.protocol)
def test_without_a_client_nothing_is_proven(proof: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    """Each history has a row that says so."""
    missing = [ClientKind(name, missing=f"no {name}") for name in proof.clients]
    assert run(replace(proof, kinds=lambda _options: missing), "-o", "json") == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert not found["proven"]
    assert {row["passed"] for row in found["rows"]} == {None}
    planned = [(each.defect, client) for each in proof.histories for client in each.clients or proof.clients]
    assert sorted((row["defect"], row["client"]) for row in found["rows"]) == sorted(planned)
    for client in proof.clients:
        assert f"WARNING: the {client} client is NOT RUN: no {client}" in said.err


def test_only_the_histories_of_a_defect_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PULSAR, "--only", "B8", "D4", "--client", "java", "-o", "json") == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["defect"] for row in rows] == ["D4", "B1 B8"]


def test_folder_of_an_earlier_run_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its topics would be those of another proof."""
    (tmp_path / "cluster").mkdir()
    assert run(KAFKA, "--data", str(tmp_path)) == 2
    assert f"--data {tmp_path} is not empty" in capsys.readouterr().err
