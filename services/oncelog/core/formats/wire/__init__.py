"""What clients of other systems have written: generated from proto/oncelog/core/formats/wire, never edited by hand."""
