"""`oncelog-doors pulsar-proof` and `kafka-proof`: rows with Python's clients; the others are a proof of the night."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment

TIMEOUT_S = 300.0


def proven(data: Path, words: str) -> tuple[dict[str, Any], str]:
    """What the command prints, which must succeed, and its standard error."""
    command = guarded([sys.executable, "-m", "oncelog_doors", *words.split(), "--data", str(data), "-o", "json"])
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    found = json.loads(done.stdout)
    assert found["proven"]
    return found, said


def test_rows_of_kafka_pass_with_each_client(tmp_path: Path) -> None:
    """A producer that is unknown, numbers that wrap around, and a producer that is taken for another."""
    found, _ = proven(tmp_path, "kafka-proof --only K2 K6 K35")
    assert [(row["defect"], row["client"]) for row in found["rows"]] == [
        ("K2", "confluent-kafka"),
        ("K6 K7", "aiokafka"),
        *(("K35", client) for client in ("confluent-kafka", "kafka-python", "aiokafka")),
    ]
    sides = {row["defect"]: (row["kafkas_rule"], row["door"]) for row in found["rows"]}
    assert sides["K2"] == ("acknowledged 1-4; read 3-4; LOST 1-2", "acknowledged 1-4; read 1-4")
    assert sides["K6 K7"] == ("acknowledged 1-6; read 1-6; refused 7-9", "acknowledged 1-9; read 1-9")
    assert sides["K35"] == ("acknowledged 1-2; read 1; LOST 2", "acknowledged 1; read 1; refused 2")


def test_rows_of_pulsar_pass_and_a_missing_client_is_reported(tmp_path: Path) -> None:
    found, said = proven(tmp_path, "pulsar-proof --only D1 D4 B7 K1 --client python java")
    assert "WARNING: the java client is NOT RUN" in said
    assert {(row["defect"], row["client"]): row["passed"] for row in found["rows"]} == {
        ("D1", "python"): True,
        ("D1", "java"): None,
        ("D4", "python"): True,
        ("D4", "java"): None,
        ("B7", "python"): True,
        ("B7", "java"): None,
        ("K1", "python"): True,
        ("K1", "java"): None,
    }
    sides = {row["defect"]: (row["pulsars_rule"], row["door"]) for row in found["rows"] if row["passed"]}
    assert sides["D1"] == ("acknowledged 1-2; read 2; LOST 1", "acknowledged 1-2; read 1-2")
    assert sides["D4"] == ("acknowledged 2-5; read 2-3 5; LOST 4", "acknowledged 2-3 5; read 2-3 5; refused 4")
    assert sides["B7"][0].endswith("receipt without a place")
    assert [side.endswith("AGAIN 10 12") for side in sides["K1"]] == [True, False]
