"""Directories that former versions have written: each later version reads them, for ever."""
