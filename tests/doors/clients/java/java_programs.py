"""Programs with Java clients: Maven fetches the client, javac compiles, and a JVM runs them."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.commands import environment
from tests.cluster.programs import Running, started

HERE = Path(__file__).parent
#: What Maven has fetched is kept there.
KEPT = HERE.parents[3] / "build/pulsar_clients"
_INSTALL_S = 900
#: Of the client's log, on standard error.
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
#: Most programs run for a second: they need neither the better compiler nor another thread for the garbage.
_SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Lower than that of the test, which must not miss its moment.
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class JavaPrograms:
    """The programs of one folder, compiled."""

    classes: Path
    jars: Path

    @classmethod
    def compiled(cls, pom: Path, classes: Path, sources: Path | None = None) -> "JavaPrograms":
        """classes: an empty directory. sources: the folder of the programs, if they are not beside their pom.xml."""
        jars = fetched(pom)
        files = [str(path) for path in sorted((sources or pom.parent).glob("*.java"))]
        command = [program("javac"), "-d", str(classes), "-cp", f"{jars}/*", *files]
        subprocess.run(command, check=True, timeout=_INSTALL_S)
        return cls(classes, jars)

    def command(self, name: str, *arguments: str) -> list[str]:
        """Of the program of this class."""
        path = f"{self.classes}{os.pathsep}{self.jars}/*"
        return [program("java"), "-Xmx256m", *_SHORT_LIFE, _LOG_LEVEL, "-cp", path, name, *arguments]

    def start(self, log: Path, name: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> Running:
        """The program of this class."""
        running = started(log, guarded(self.command(name, *arguments)), environment(), log.parent, stdin=stdin)
        os.setpriority(os.PRIO_PROCESS, running.process.pid, _NICENESS)
        return running


def fetched(pom: Path) -> Path:
    """The folder of the jars that the file names, and of those that they need."""
    jars = KEPT / f"{pom.parent.name}-{crc32(pom.read_bytes()):08x}"
    if not jars.exists():
        partial = jars.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        subprocess.run([program("mvn"), "-q", "-B", "-f", str(pom), *goal], check=True, timeout=_INSTALL_S)
        partial.rename(jars)
    return jars


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: `make tools-java` installs it"
    return found
