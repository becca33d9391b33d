"""A cluster for tests of the SDK, without services."""
