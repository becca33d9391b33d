"""The actions of pages; `ACTIONS` lists them. Each is an `Action`, whose template extends confirm.html.

To add one: a module here with `Action(...)` objects, listed below; a template that fills `loss` with what would be
lost, or says that nothing is; a link to it in `actions.html`, shown only if `view.may(right, namespace)`. Parameters go
into the query of that link, by `<form method="get" action="…">` if the viewer chooses them; `collect` and `change` read
them from `view.query`. Test it as `tests/contract/rest/console/test_actions.py` does.
"""

from oncelog.metadata.console.action import Action
from oncelog.metadata.console.actions import policies, proofs, storage, subscriptions, topics

ACTIONS: tuple[Action, ...] = (
    *topics.ACTIONS, *policies.ACTIONS, *subscriptions.ACTIONS, *storage.ACTIONS, *proofs.ACTIONS,
)  # fmt: skip
