"""The service that stores ledgers: append, fence, read, reclaim."""
