"""The same effect beside other systems, under the same kills: `make effects-comparison`."""
