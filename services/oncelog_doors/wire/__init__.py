"""What crosses the network: generated from proto/oncelog_doors/wire, never edited by hand."""
