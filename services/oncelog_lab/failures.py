"""The errors of the lab."""

from oncelog.core.errors import Fatal


class LabFailed(Fatal):
    """The run cannot continue, or it has no result. The message says what failed and what to do."""


class FaultMissed(Fatal):
    """A fault had no target, or it had no effect on its target."""
