"""Subscriptions at the topic's owner: the ack chain and its fold, delivery, and what retention may trim."""
