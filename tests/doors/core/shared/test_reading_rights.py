"""Who may read through a door."""

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import PermissionDenied
from oncelog.core.names import TopicName
from oncelog_doors.core.shared.reading_rights import may_read

TOPIC = TopicName("public", "default", "orders")
GRANTS = {"billing": ["consume"], "both": ["consume", "produce"], "importer": ["produce"], "admin": ["admin"]}


@pytest.mark.parametrize(
    ("role", "wanted", "creates"),
    [("billing", True, False), ("billing", False, False), ("both", True, True), ("both", False, False)],
)
def test_right_to_consume_reads_and_that_to_produce_creates(role: str, wanted: bool, creates: bool) -> None:
    """As at the owner, and only if the client wants it."""
    assert may_read(Caller(role), GRANTS, TOPIC, may_create=wanted) is creates


@pytest.mark.parametrize("role", ["importer", "admin", "stranger", ""])
def test_other_rights_do_not_read(role: str) -> None:
    """The error names the namespace and the right."""
    with pytest.raises(PermissionDenied, match=r"consume in namespace public/default"):
        may_read(Caller(role), GRANTS, TOPIC, may_create=True)
