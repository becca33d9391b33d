"""What a role may see and create by looking a topic up."""

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import PermissionDenied
from oncelog.core.names import parse_topic
from oncelog_doors.core.shared.lookup_rights import may_create, require_creation

TOPIC = parse_topic("shop/orders/new")
GRANTS = {"importer": ["produce"], "billing": ["consume"], "ops": ["admin"]}


@pytest.mark.parametrize(
    ("role", "wanted", "creates"),
    [("importer", True, True), ("importer", False, False), ("billing", True, False), ("billing", False, False)],
)
def test_right_to_produce_creates(role: str, wanted: bool, creates: bool) -> None:
    """The right to consume sees only."""
    assert may_create(Caller(role), GRANTS, TOPIC, wanted=wanted) is creates


@pytest.mark.parametrize("role", ["ops", "stranger"])
def test_role_without_either_right_sees_nothing(role: str) -> None:
    """It would learn which topics there are."""
    with pytest.raises(PermissionDenied, match=rf"{role} has no right to produce or consume in namespace shop/orders"):
        may_create(Caller(role), GRANTS, TOPIC, wanted=False)


def test_missing_topic_names_the_right() -> None:
    """A consumer that wanted it created."""
    with pytest.raises(PermissionDenied, match="no right to produce in namespace shop/orders"):
        require_creation(Caller("billing"), TOPIC)
