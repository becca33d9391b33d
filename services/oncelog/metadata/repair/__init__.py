"""The repairer of the elected metadata replica."""
