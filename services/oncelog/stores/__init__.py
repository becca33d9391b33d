"""How metadata lasts: the only importer of kazoo, and of redis but for client.effects."""
