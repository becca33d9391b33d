"""How to install what is missing. Oncelog is on no package index: `make dist` in its source builds the wheels."""

from collections.abc import Iterator
from importlib.metadata import version

#: The wheel of the log. The others need exactly its version.
_LOG = "oncelog"
_OTHERS = "oncelog_"


def install_command(*parts: str) -> str:
    """The command that installs these parts: an extra of `oncelog` ("services"), another wheel ("oncelog_lab"), or that
    wheel with an extra ("oncelog_effects[sql]"). Without parts: the wheel of `oncelog`."""
    extras: dict[str, dict[str, None]] = {} if parts else {_LOG: {}}
    for part in parts:
        wheel, extra = wheel_and_extra(part)
        extras.setdefault(wheel, {}).update(dict.fromkeys([extra] if extra else []))
    return f"pip install {' '.join(_files(extras))} (`make dist` in the source builds these files)"


def wheel_and_extra(part: str) -> tuple[str, str]:
    """part: as for `install_command`. The extra is "" if it names none."""
    if not part.startswith(_OTHERS):
        return _LOG, part
    wheel, _, extra = part.partition("[")
    return wheel, extra.rstrip("]")


def _files(extras: dict[str, dict[str, None]]) -> Iterator[str]:
    number = version(_LOG)
    for wheel, names in extras.items():
        file = f"dist/{wheel}-{number}-py3-none-any.whl"
        yield f"'{file}[{','.join(names)}]'" if names else file
