"""Commands for switches, which are on, off or not set: the same three commands at each level."""

from collections.abc import Callable
from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.rest import AdminApi, Answer

#: The group of the policies in the help. Each has three commands, so the line of each is short there.
POLICIES_PANEL = "Policies: the most specific level that sets one wins"
#: Returns the path of a switch, from the name that the user typed.
Place = Callable[[AdminApi, str], str]


def add_switch(app: typer.Typer, switch: str, level: str, place: Place) -> None:
    """Add set-SWITCH, get-SWITCH and remove-SWITCH for a namespace or topic. level: name of the argument."""
    Name = Annotated[str, typer.Argument(metavar=level.upper(), help=f"{level.capitalize()}.")]  # noqa: N806

    def set_switch(api: AdminApi, name: Name, enable: Enable) -> Answer:
        api.post(place(api, name), enable)
        return f"{switch} of {name}: {_shown(enable)}"

    def get_switch(api: AdminApi, name: Name, applied: Applied = False) -> Answer:
        return _read(api, place(api, name), applied)

    def remove_switch(api: AdminApi, name: Name) -> Answer:
        api.delete(place(api, name))
        return f"{switch} of {name}: not set; the next level decides"

    _add(app, switch, level, set_switch, get_switch, remove_switch)


def add_cluster_switch(app: typer.Typer, switch: str, last: str) -> None:
    """Add the same commands for the cluster. last: the last element of the path."""

    def place(api: AdminApi) -> str:
        return cluster_place(api, last)

    def set_switch(api: AdminApi, enable: Enable) -> Answer:
        api.post(place(api), enable)
        return f"{switch} of the cluster: {_shown(enable)}"

    def get_switch(api: AdminApi, applied: Applied = False) -> Answer:
        return _read(api, place(api), applied)

    def remove_switch(api: AdminApi) -> Answer:
        api.delete(place(api))
        return f"{switch} of the cluster: not set; the default applies"

    _add(app, switch, "cluster", set_switch, get_switch, remove_switch)


def cluster_place(api: AdminApi, last: str) -> str:
    """The path of a policy of the cluster. last: its last element."""
    clusters = api.get("/admin/v2/clusters")
    cluster = clusters[0] if isinstance(clusters, list) and clusters else ""
    return f"/admin/v2/clusters/{cluster}/{last}"


Enable = Annotated[bool, typer.Option("--enable/--disable", help="Turn the switch on or off.")]
Applied = Annotated[bool, typer.Option("--applied", help="Show the effective value, and the level that it comes from.")]


def _add(
    app: typer.Typer,
    switch: str,
    level: str,
    set_switch: Callable[..., Answer],
    get_switch: Callable[..., Answer],
    remove_switch: Callable[..., Answer],
) -> None:
    set_switch.__doc__ = f"Turn {switch} of a {level} on or off. The most specific level that sets it wins."
    get_switch.__doc__ = (
        f"Show whether {switch} is set on a {level}. With --applied, show the effective value and its source."
    )
    remove_switch.__doc__ = f"Unset {switch} of a {level}. Then the next level decides."
    name = switch.replace(" ", "-")
    admin_command(app, f"set-{name}", panel=POLICIES_PANEL, line="Turn it on or off.")(set_switch)
    admin_command(app, f"get-{name}", panel=POLICIES_PANEL, line="Show it.")(get_switch)
    admin_command(app, f"remove-{name}", panel=POLICIES_PANEL, line="Unset it.")(remove_switch)


def _read(api: AdminApi, path: str, applied: bool) -> Answer:
    answer = api.get(path, applied=True) if applied else api.get(path)
    return answer if isinstance(answer, dict) else {"set": answer}


def _shown(enable: bool) -> str:
    return "on" if enable else "off"
