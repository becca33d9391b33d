"""Delivery: a topic's subscriptions, their consumers, what these are sent and what they acknowledge."""
