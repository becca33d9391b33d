"""Notes of records on storage nodes: who writes them, who must hold them, and who compares them."""
