"""Real processes: what an administrator was answered is noted on storage nodes."""

import pytest

from oncelog.core.formats.note import Note
from oncelog.core.ids import Incarnation
from oncelog.metadata_store.records.policies import decode_policies
from oncelog.rpc.channel import Channel
from oncelog.storage_client.note_calls import read_notes
from tests.cluster.cluster_fixture import Cluster

pytestmark = pytest.mark.asyncio

NODES = ("storage-1", "storage-2")
NAMESPACE = "/policies/namespaces/noted/rights"


async def notes_at(cluster: Cluster, node: str) -> dict[str, Note]:
    incarnation = Incarnation(cluster.serving(node, "incarnation"))
    async with Channel(cluster.serving(node)) as channel:
        return {note.path: note async for note in read_notes(channel, incarnation)}


@pytest.mark.hazard("revoked-right-returns")
async def test_answered_change_is_noted_at_an_ack_quorum(cluster: Cluster) -> None:
    """The owners' ack quorum is both nodes. It is noted, too, and each node has the notes of all cookies since it
    became a member."""
    permissions = "/admin/v2/namespaces/noted/rights/permissions/reader"
    for method, path, body in (
        ("PUT", "/admin/v2/tenants/noted", None),
        ("PUT", "/admin/v2/namespaces/noted/rights", None),
        ("POST", permissions, ["consume"]),
        ("DELETE", permissions, None),
    ):
        answer = await cluster.request(method, path, json=body)
        assert answer.is_success, answer.text
    cookies = {f"/storage_cookies/{cluster.serving(node, 'incarnation')}" for node in NODES}
    for notes in [await notes_at(cluster, node) for node in NODES]:
        assert decode_policies(notes[NAMESPACE].value).permissions == {}
        assert notes[NAMESPACE].order.version == 2
        assert b'"ack_quorum":2' in notes["/cluster"].value
        assert cookies <= notes.keys()
    for path in ("namespaces/noted/rights", "tenants/noted"):
        answer = await cluster.request("DELETE", f"/admin/v2/{path}")
        assert answer.is_success, answer.text
    assert all([(await notes_at(cluster, node))[NAMESPACE].order.deleted for node in NODES])


@pytest.mark.hazard("revoked-right-returns")
async def test_policy_of_a_topic_is_noted_with_the_name_of_the_topic(cluster: Cluster) -> None:
    """The topic was created by use, and nothing was published: its policies are found by its id, and only its name says
    which that is."""
    look_up = "/lookup/v2/topic/persistent/public/default/noted-by-use?create=true"
    answer = await cluster.request("GET", look_up)
    assert answer.is_success, answer.text
    topic_id = answer.json()["topic_id"]
    answer = await cluster.request("POST", "/admin/v2/persistent/public/default/noted-by-use/messageTTL", json=7)
    assert answer.is_success, answer.text
    for notes in [await notes_at(cluster, node) for node in NODES]:
        assert f"/policies/topics/{topic_id}" in notes
        assert topic_id.encode() in notes["/names/public/default/noted-by-use"].value
