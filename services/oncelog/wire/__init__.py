"""What crosses the network: generated from proto/oncelog/wire, never edited by hand."""
