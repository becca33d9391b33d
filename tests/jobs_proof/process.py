"""One start of a command of `oncelog pipeline`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proofs.session_process import SessionProcess

#: Local, with one small Java process.
SPARK = (
    "--master=local[2]",
    "--conf=spark.driver.memory=1g",
    "--conf=spark.python.authenticate.socketTimeout=120s",
    "--conf=spark.sql.session.timeZone=UTC",
)


class JobProcess(SessionProcess):
    """`oncelog pipeline WORDS … -o json`. place: its working directory, empty before, also for its output."""

    def __init__(self, words: Sequence[str], place: Path) -> None:
        place.mkdir(parents=True)
        self._answer = place / "answer.json"
        command = ["-m", "oncelog.cli", "pipeline", *words, *SPARK, "-o", "json"]
        super().__init__(command, place, place / "errors.log", output=self._answer)

    @property
    def answer(self) -> dict[str, Any]:
        """Its output."""
        told: dict[str, Any] = json.loads(self._answer.read_text())
        return told
