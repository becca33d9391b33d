"""Client libraries of Pulsar that may be installed here, and how the program with each of them is started."""

import importlib.util
import shutil
from pathlib import Path

from oncelog_doors.proof.children import module
from oncelog_doors.proof.histories import ClientKind

_PROGRAMS = Path(__file__).with_name("clients")
_JAVA_FILE = _PROGRAMS / "java/ProofClient.java"
#: Java's client reads its classes from all of the folder. It logs to standard error.
_JAVA_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


def client_kinds(java: Path | None, go: Path | None) -> list[ClientKind]:
    """java: a folder of jars. go: the compiled program."""
    return [_python(), _java(java), _go(go)]


def _python() -> ClientKind:
    if importlib.util.find_spec("pulsar") is None:
        return ClientKind("python", missing="pip install pulsar-client")
    return ClientKind("python", tuple(module("oncelog_doors.proof.pulsar.clients.python_client")))


def _java(jars: Path | None) -> ClientKind:
    java = shutil.which("java")
    if jars is None:
        return ClientKind("java", missing="name the folder of the client's jars with --java")
    if java is None or shutil.which("javac") is None:
        return ClientKind("java", missing="install a JDK of version 11 or later")
    if not any(jars.glob("pulsar-client*.jar")):
        return ClientKind("java", missing=f"{jars} has no pulsar-client*.jar")
    return ClientKind(
        "java", (java, "-Xmx256m", "-XX:TieredStopAtLevel=1", _JAVA_LOG, "-cp", f"{jars}/*", str(_JAVA_FILE))
    )


def _go(program: Path | None) -> ClientKind:
    if program is None:
        return ClientKind("go", missing="build the program, and name it with --go")
    if shutil.which(str(program)) is None:
        return ClientKind("go", missing=f"{program} is no program")
    return ClientKind("go", (str(program.absolute()),))
