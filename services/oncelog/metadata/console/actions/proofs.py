"""Actions on the proof of one topic."""

from typing import Any

from oncelog.core.access import Right
from oncelog.metadata.console.action import Action, Change
from oncelog.metadata.console.actions.topics import rest_topic
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rendering import topic_link


async def _proof(view: View) -> dict[str, Any]:
    proof = await view.read_fresh(rest_topic(view, "/proof"))
    proof.require_place()
    return {"proof": proof}


def _action(name: str, method: str, template: str, title: str, done: str, *, loses: bool) -> Action:
    return Action(
        path="/console/topics/{tenant}/{namespace}/{topic}/" + name,
        name=name,
        title=title,
        done=done,
        rights=(Right.ADMIN,),
        template=template,
        collect=_proof,
        typed=lambda view: view.topic if loses else None,
        change=lambda view: Change(method, rest_topic(view, "/proof")),
        back=lambda view: topic_link(view.topic, "proof"),
        shows_answer=False,
    )


ACTIONS = (
    _action("prove", "POST", "prove.html", "Prove the topic", "The proof waits for its turn, or goes on.", loses=False),
    _action(
        "cancel-proof",
        "DELETE",
        "cancel_proof.html",
        "Cancel the proof",
        "A proof that went on ends within seconds.",
        loses=True,
    ),
)
