"""`oncelog admin cluster`: what concerns the cluster as a whole, besides its policies."""
