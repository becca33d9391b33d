"""What clients of a running cluster see."""
