"""Look-up and deletion of topics by metadata services."""
