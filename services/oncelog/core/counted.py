"""Counts in sentences."""


def counted(count: int, what: str, many: str | None = None) -> str:
    """1 entry, 2,000 entries. many: where it is not `what` with an s."""
    return f"{count:,} {what if count == 1 else many or what + 's'}"
