"""`oncelog mirror`: copy topics into another cluster."""
