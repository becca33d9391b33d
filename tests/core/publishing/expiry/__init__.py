"""How long producers live: leases, policies, sessions."""
