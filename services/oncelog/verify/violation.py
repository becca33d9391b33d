"""What an oracle says when a history breaks a rule."""


class Violation(Exception):
    """A history breaks `rule`."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
