"""The client's half of a consumer: one attached subscription of one topic."""
