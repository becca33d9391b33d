"""Routes responses of storage nodes to the topic that writes the ledger."""

from collections.abc import Callable

from oncelog.core.chain.managed_ledger import EntriesAnswered, MemberLost
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus

Post = Callable[[EntriesAnswered | MemberLost], None]


class LedgerRoutes:
    """{ledger: the topic's `post`}. A ledger has one writer. Responses for other ledgers are late, and dropped."""

    def __init__(self) -> None:
        self._posts: dict[LedgerId, Post] = {}
        #: {the topic's `post`: its ledgers}; without it, the end of each of 5,000 topics would look at all ledgers
        self._ledgers: dict[Post, set[LedgerId]] = {}

    def add(self, ledger_id: LedgerId, post: Post) -> None:
        if ledger_id not in self._posts:
            self._posts[ledger_id] = post
            self._ledgers.setdefault(post, set()).add(ledger_id)

    def __len__(self) -> int:
        return len(self._posts)

    def forget(self, ledger_id: LedgerId) -> None:
        """The ledger is CLOSED and has no writer any more."""
        post = self._posts.pop(ledger_id, None)
        if post is not None:
            self._ledgers[post].discard(ledger_id)

    def remove(self, post: Post) -> None:
        """Remove every ledger of one topic."""
        for ledger_id in self._ledgers.pop(post, ()):
            del self._posts[ledger_id]

    def answered(
        self, member: Incarnation, ledger_id: LedgerId, entry_ids: list[EntryId], status: AppendStatus
    ) -> None:
        """A storage node responded for entries of one ledger."""
        post = self._posts.get(ledger_id)
        if post is not None:
            post(EntriesAnswered(ledger_id, member, entry_ids, status))

    def lost(self, member: Incarnation, ledger_ids: list[LedgerId]) -> None:
        """A storage node accepts no more entries of these ledgers."""
        for ledger_id in ledger_ids:
            post = self._posts.get(ledger_id)
            if post is not None:
                post(MemberLost(ledger_id, member))
