"""Permissions: a caller's role, the rights that a namespace grants to roles, and the decision. Pure.

Rules
- A right that is not granted is refused. A superuser may do everything; only superusers may act on the whole cluster.
- No right includes another one: `admin` may neither publish nor read, but it may grant itself these rights.
- Without authentication there are no roles, and every caller is UNCHECKED.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import PermissionDenied


class Right(StrEnum):
    """The rights of a namespace: to administer it, to publish to its topics, to read them."""

    ADMIN = "admin"
    PRODUCE = "produce"
    CONSUME = "consume"


#: {role: its rights in one namespace}; unknown rights of a later version are kept, and allow nothing.
Permissions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, as proved by its token. address: host:port from which it came; empty: unknown. era: of
    the service that calls; all others are of the first."""

    role: str
    superuser: bool = False
    address: str = field(default="", compare=False)
    era: Era = field(default=FIRST_ERA, compare=False)


#: Stands for the operator in records and in the log, for a caller without a role.
NO_ROLE = "unauthenticated"
#: Every caller when authentication is off.
UNCHECKED = Caller("", superuser=True)


def caller_for(caller: Caller, stated: Caller | None) -> Caller:
    """The caller whose rights apply: the one that a superuser states, else `caller`. Raises PermissionDenied."""
    if stated is None:
        return caller
    if not caller.superuser:
        raise PermissionDenied(f"role {caller.role} is not a superuser, and cannot act for role {stated.role}")
    # Without authentication there are no roles, whatever is stated.
    return caller if caller == UNCHECKED else stated


def may(caller: Caller, grants: Permissions, *rights: Right) -> bool:
    """Whether the caller has any of `rights` by a namespace's grants. Without rights: only superusers may."""
    return caller.superuser or any(right in grants.get(caller.role, ()) for right in rights)


def require(caller: Caller, grants: Permissions, *rights: Right, what: str) -> None:
    """Raises PermissionDenied unless `may`. what: the object of the rights, for the message: "namespace a/b"."""
    if not may(caller, grants, *rights):
        wanted = " or ".join(rights)
        raise PermissionDenied(
            f"permission denied: role {caller.role} has no right to {wanted} in {what}: ask an admin to grant it"
        )


def require_superuser(caller: Caller) -> None:
    """Raises PermissionDenied."""
    if not caller.superuser:
        raise PermissionDenied(f"permission denied: role {caller.role} is not a superuser")
