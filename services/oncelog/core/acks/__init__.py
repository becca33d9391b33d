"""The ack log: the durable changes of a topic's subscriptions, their format, and their fold."""
