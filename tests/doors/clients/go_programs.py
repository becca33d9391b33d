"""Programs with Go clients: the go command fetches the clients and builds the programs."""

import os
import shutil
import subprocess
from pathlib import Path

_BUILD_S = 900


def go_variables(kept: Path) -> dict[str, str]:
    """Of the go command. kept: the folder of all that it fetches and builds. Without it, the home of whoever runs the
    tests would get read-only files."""
    return {"GOMODCACHE": str(kept / "go-modules"), "GOCACHE": str(kept / "go-built"), "GOFLAGS": "-modcacherw"}


def built(sources: Path, kept: Path, directory: Path) -> str:
    """The program in these sources. directory: an empty one."""
    found = shutil.which("go")
    version = next(line.split()[1] for line in (sources / "go.mod").read_text().splitlines() if line.startswith("go "))
    assert found is not None, f"the go command is missing: install Go {version} or a newer one"
    program = directory / "programs"
    command = [found, "build", "-o", str(program), "."]
    subprocess.run(command, cwd=sources, env=os.environ | go_variables(kept), check=True, timeout=_BUILD_S)
    return str(program)
