"""Changes of one policy, of a topic, a namespace or the cluster."""

from typing import Any, NamedTuple

from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.action import Action, Change
from oncelog.metadata.console.page import View
from oncelog.metadata.console.policies import POLICIES
from oncelog.metadata.console.rendering import topic_link
from oncelog.metadata.console.rest_reading import rest_path


class _Level(NamedTuple):
    """name: in REST. path: of the action. rest: the path in REST below which the policies are; `parts` of it are those
    of the action's path."""

    name: str
    path: str
    rest: str
    parts: tuple[str, ...]
    rights: tuple[Right, ...]

    def target(self, view: View, last: str) -> str:
        return rest_path(f"/admin/v2/{self.rest}/{{}}", *(view.parts[name] for name in self.parts), last)

    def place(self, view: View) -> str:
        """What the viewer types: the name of the topic or namespace, or the beginning of the cluster's id."""
        return (
            view.parts["cluster"][:8] if self.name == "cluster" else "/".join(view.parts[name] for name in self.parts)
        )

    def back(self, view: View) -> str:
        match self.name:
            case "topic":
                return topic_link(view.topic)
            case "namespace":
                return rest_path("/console/policies/{}/{}", *(view.parts[name] for name in self.parts))
        return "/console/policies"


_LEVELS = (
    _Level(
        "topic", "/console/topics/{tenant}/{namespace}/{topic}/policy", "persistent/{}/{}/{}",
        ("tenant", "namespace", "topic"), (Right.ADMIN,),
    ),
    _Level(
        "namespace", "/console/policies/{tenant}/{namespace}/policy", "namespaces/{}/{}", ("tenant", "namespace"),
        (Right.ADMIN,),
    ),
    _Level("cluster", "/console/clusters/{cluster}/policy", "clusters/{}", ("cluster",), ()),
)  # fmt: skip


def _policy(view: View) -> str:
    """Raises InvalidArgument: an address must not lead to a request of another kind."""
    name = view.query.get("name", "")
    if name not in POLICIES:
        raise InvalidArgument(f"name: a policy is one of {', '.join(POLICIES)}", field="name")
    return name


def _action(level: _Level) -> Action:
    async def collect(view: View) -> dict[str, Any]:
        """Raises InvalidArgument."""
        name = _policy(view)
        policies = await view.read_fresh(level.target(view, "policies"))
        policies.require_place()
        policy = POLICIES[name]
        return {
            "policies": policies,
            "name": name,
            "policy": policy,
            "level": level.name,
            "place": level.place(view),
            "then": policy.words(policy.body(view.query)) if view.query.get("do") == "set" else None,
        }

    def change(view: View) -> Change:
        target = level.target(view, _policy(view))
        match view.query.get("do"):
            case "set":
                return Change("POST", target, POLICIES[_policy(view)].body(view.query))
            case "remove":
                return Change("DELETE", target)
        raise InvalidArgument("do: must be set or remove", field="do")

    return Action(
        path=level.path,
        name=f"{level.name}-policy",
        title="Change a policy",
        done="The policy was changed.",
        rights=level.rights,
        template="policy_loss.html",
        collect=collect,
        typed=level.place,
        change=change,
        back=level.back,
    )


ACTIONS = tuple(map(_action, _LEVELS))
