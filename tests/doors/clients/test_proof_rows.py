"""`oncelog-doors pulsar-proof`: four rows with Pulsar's Python client; the others are a proof of the night."""

import json
import subprocess
import sys
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment

TIMEOUT_S = 300.0


def test_rows_pass_and_a_missing_client_is_reported(tmp_path: Path) -> None:
    words = [
        "pulsar-proof",
        "--only",
        "D1",
        "D4",
        "B7",
        "K1",
        "--client",
        "python",
        "java",
        "--data",
        str(tmp_path),
        "-o",
        "json",
    ]
    command = guarded([sys.executable, "-m", "oncelog_doors", *words])
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "WARNING: the java client is NOT RUN" in said
    found = json.loads(done.stdout)
    assert found["proven"]
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
