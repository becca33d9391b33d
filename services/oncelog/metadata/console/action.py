"""What an action is: a page that says what would be lost and asks, and the request that is then made.

The page has a URL with all that the action needs in path and query: GET shows it, POST to the same URL does it. So what
is confirmed is what is done. The form carries the CSRF token of this URL, what the viewer typed, and for an action that
would take more when it is done again, also the figures that its page showed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import ne
from typing import Any

from oncelog.core.access import Right, require, require_superuser
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rest_reading import Problem

#: Figures that a form carries: numbers and ids.
Figures = list[Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A REST request. body: sent as JSON; None: none."""

    method: str
    target: str
    body: object = None


@dataclass(frozen=True, slots=True)
class Action:
    """path: with {parts}, below a page. name: unique, one word. title: an order, "Unload the topic". done: what is told
    afterwards; figures that the call answers are shown with it, unless shows_answer is False, because the page to
    return to shows them. rights: in the namespace of the path, any of them; none: only superusers.

    collect: the context of the template, from `view.read_fresh`: what the action would lose. typed: what the viewer
    types to confirm, the name of what is changed; None: nothing, as nothing can be lost. change: the request. back: the
    page to return to.

    seen: the figures of a context that tell whether the action was done since, or why they are unknown; none: to do it
    again takes nothing more. The form carries them, and they are read again before the request, so a form that is sent
    again is refused by any replica, also after a restart. moved: whether the action must be asked for again, from what
    the form carries and what is now.
    """

    path: str
    name: str
    title: str
    done: str
    rights: tuple[Right, ...]
    template: str
    collect: Callable[[View], Awaitable[dict[str, Any]]]
    typed: Callable[[View], str | None]
    change: Callable[[View], Change]
    back: Callable[[View], str]
    shows_answer: bool = True
    seen: Callable[[Mapping[str, Any]], Figures | Problem] | None = None
    moved: Callable[[Figures, Figures], bool] = ne

    def check(self, view: View) -> None:
        """Raises PermissionDenied early; the request itself is checked again."""
        if view.caller.superuser or (self.rights and not view.me.known):
            return
        granted = tuple(view.me.value["namespaces"].get(view.namespace, ())) if self.rights else ()
        if not self.rights:
            require_superuser(view.caller)
        require(view.caller, {view.caller.role: granted}, *self.rights, what=f"namespace {view.namespace}")
