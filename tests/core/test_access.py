"""Decisions about rights: what is not granted is refused."""

from itertools import product

import pytest

from oncelog.core.access import UNCHECKED, Caller, Right, may, require, require_superuser
from oncelog.core.errors import PermissionDenied

GRANTS = {"importer": ("produce",), "auditor": ("consume", "a right of a later version"), "keeper": ("admin",)}


@pytest.mark.parametrize(("role", "right"), list(product([*GRANTS, "stranger", ""], Right)))
def test_a_granted_right_implies_no_other_right(role: str, right: Right) -> None:
    """No right implies another one, and a role that is not named has none."""
    assert may(Caller(role), GRANTS, right) == (right in GRANTS.get(role, ()))


def test_one_of_several_accepted_rights_is_enough() -> None:
    """A look-up needs the right to publish or the right to read."""
    assert may(Caller("auditor"), GRANTS, Right.PRODUCE, Right.CONSUME)
    assert not may(Caller("keeper"), GRANTS, Right.PRODUCE, Right.CONSUME)


def test_a_superuser_needs_no_grant() -> None:
    """The same holds for every client while authentication is off."""
    for caller in (Caller("root", superuser=True), UNCHECKED):
        assert all(may(caller, {}, right) for right in Right)
        require_superuser(caller)


def test_call_without_a_required_right_is_for_superusers_only() -> None:
    """A call without a rule is refused to every other role."""
    assert not may(Caller("keeper"), GRANTS)


def test_refusal_names_the_role_the_right_and_the_resource() -> None:
    """The client can ask an administrator for exactly this right."""
    with pytest.raises(PermissionDenied, match="role auditor has no right to produce in namespace a/b"):
        require(Caller("auditor"), GRANTS, Right.PRODUCE, what="namespace a/b")
    with pytest.raises(PermissionDenied, match="role keeper is not a superuser"):
        require_superuser(Caller("keeper"))
