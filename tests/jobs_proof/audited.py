"""The oracle of all topics: `oncelog pipeline audit`."""

from dataclasses import asdict, dataclass
from typing import Any

from tests.proofs.report import Besides

GOOD = "good"


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of the audit of all topics. picture_bytes: size of its picture."""

    verdict: str
    topics: int
    messages: int
    violations: int
    takeovers: int
    picture_bytes: int

    @classmethod
    def of(cls, report: dict[str, Any], picture_bytes: int) -> "Audited":
        topics = report["topics"]
        return cls(
            report["verdict"],
            len(topics),
            sum(topic["messages"] for topic in topics),
            sum(topic["violations_count"] for topic in topics),
            sum(len(topic["takeovers"]) for topic in topics),
            picture_bytes,
        )

    @property
    def good(self) -> bool:
        return self.verdict == GOOD and self.topics > 0 and self.picture_bytes > 0

    @property
    def besides(self) -> Besides:
        """For the report."""
        line = (
            f"audit: {self.verdict}, {self.topics} topics with {self.messages} messages and "
            f"{self.takeovers} takeovers, {self.violations} violations"
        )
        return Besides("audit", self.good, asdict(self), [line])
