"""`oncelog-doors serve` as a process of its own, which is forked from one that has imported it."""

import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.cluster.commands import environment
from tests.cluster.forked_program import ForkedPopen, of_the_run
from tests.doors.pulsar.bytes_of_clients import CONNECT, command, frame
from tests.doors.pulsar.raw_client import RawClient

DEADLINE_S = 60.0


class DoorProgram:
    """A door that serves. serving: the addresses that it has reported, by scheme."""

    def __init__(self, process: "subprocess.Popen[bytes]", serving: Mapping[str, str]) -> None:
        self.process, self.serving = process, serving

    def port(self, scheme: str = "pulsar") -> int:
        return int(self.serving[scheme].rpartition(":")[2])

    @classmethod
    @contextmanager
    def running(cls, *arguments: str, settings: Mapping[str, str] | None = None) -> Iterator["DoorProgram"]:
        """Inside the block; it is killed at the end if it still runs. settings: variables."""
        given = environment() | dict(settings or {})
        with TemporaryFile() as log:
            process = ForkedPopen(of_the_run(), "oncelog_doors", ["serve", *arguments], given, log)
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                log.seek(0)
                assert line, f"the door has ended: {log.read().decode()[-2000:]}"
                yield cls(process, json.loads(line)["serving"])
            finally:
                if process.poll() is None:
                    os.kill(process.pid, 9)
                process.wait(DEADLINE_S)
                if process.stdout is not None:
                    process.stdout.close()


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


async def connect(client: RawClient, token: str = "") -> Any:
    """The answer to CONNECT."""
    proof = ((5, b"token"), (3, token.encode())) if token else ()
    return await client.answer(frame(command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20), *proof)))
