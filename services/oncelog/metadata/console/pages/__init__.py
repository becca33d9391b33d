"""One module for each page; `PAGES` lists them, in the order of the navigation."""

from oncelog.metadata.console.page import Page
from oncelog.metadata.console.pages import (
    events,
    lags,
    messages,
    overview,
    policies,
    proofs,
    storage,
    subscription,
    topic,
    topics,
    what_to_do,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    lags.PAGE,
    topic.PAGE,
    topic.PRODUCER,
    subscription.PAGE,
    messages.PAGE,
    storage.PAGE,
    events.PAGE,
    proofs.PAGE,
    proofs.TOPIC_PAGE,
    policies.PAGE,
    policies.NAMESPACE_PAGE,
    what_to_do.PAGE,
)
