"""A connection stays that of one caller: a client renews its token with another one of the same role."""

from oncelog.core.access import Caller


def refusal_of_token(new: Caller, former: Caller) -> str | None:
    """Why a connection of `former` does not take the token of `new`; None: it does."""
    if new == former:
        return None
    return f"the new token is of role {new.role}, and the connection of role {former.role}"
