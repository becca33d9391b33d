"""A topic's subscriptions under faults: owners that take over, consumers that crash, pause and wake, and an ack log.

The log of messages is given. What follows from messages is under test: delivery, acknowledgements, seeks, trims.
"""
