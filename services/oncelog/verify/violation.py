"""The error of the oracles."""


class Violation(Exception):
    """A history breaks `rule`."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
