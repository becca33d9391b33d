"""The service that stores ledgers: append, fence, read, delete."""
