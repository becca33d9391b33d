"""One start of a command of `oncelog pipeline`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.until import until
from tests.proofs.killed_run import COMMAND_S
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

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and its output, once it has ended. Raises AssertionError unless the code is 0 or 1."""
        try:
            await until(lambda: self.code is not None, COMMAND_S, waiting_for=f"the end of a command: see {self.log}")
            assert self.code in {0, 1}, f"code {self.code}: {self.log.read_text()[-3000:]}"
            return self.code, json.loads(self._answer.read_text())
        finally:
            self.end()
