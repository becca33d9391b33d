"""Who may do what: a caller's role, the rights that a namespace grants to roles, and the decision. Pure.

Rules
- What is not granted is refused. A superuser may do everything; nobody else may do anything to the cluster as a whole.
- A right stands for itself: `admin` neither publishes nor reads, but may grant itself the right to.
- Where authentication is off there are no roles, and every caller is UNCHECKED.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from oncelog.core.errors import PermissionDenied


class Right(StrEnum):
    """What a namespace can grant: to administer it, to publish to its topics, to read them."""

    ADMIN = "admin"
    PRODUCE = "produce"
    CONSUME = "consume"


#: {role: its rights in one namespace}; rights of a later version are kept as they were read, and allow nothing here.
Grants = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as a token has proved it."""

    role: str
    superuser: bool = False


#: Everybody, where authentication is off.
UNCHECKED = Caller("", superuser=True)


def caller_for(caller: Caller, stated: Caller | None) -> Caller:
    """Whose rights count: those of the caller that a superuser states, else its own. Raises PermissionDenied."""
    if stated is None:
        return caller
    if not caller.superuser:
        raise PermissionDenied(
            f"role {caller.role} is not a superuser, and cannot open producers for role {stated.role}"
        )
    # Without authentication here there are no roles, whatever somebody states.
    return caller if caller == UNCHECKED else stated


def may(caller: Caller, grants: Grants, *rights: Right) -> bool:
    """Whether the caller has any of `rights` under the grants of the namespace in question; none named: superusers."""
    return caller.superuser or any(right in grants.get(caller.role, ()) for right in rights)


def require(caller: Caller, grants: Grants, *rights: Right, what: str) -> None:
    """Raises PermissionDenied unless `may`. what: of which the rights are, for people: "namespace a/b"."""
    if not may(caller, grants, *rights):
        wanted = " or ".join(rights)
        raise PermissionDenied(f"role {caller.role} has no right to {wanted} in {what}: have it granted")


def require_superuser(caller: Caller) -> None:
    """Raises PermissionDenied."""
    if not caller.superuser:
        raise PermissionDenied(f"role {caller.role} is no superuser, and this is for superusers alone")
