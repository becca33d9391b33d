"""Everything that holds Oncelog to its word."""
