"""The store that has the effects of a subscription's messages: what consumers ask, and what the log knows."""
