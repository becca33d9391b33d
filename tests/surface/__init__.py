"""The recorder of the surface: what users and other processes see of this tree, as text files to be compared.

`python -m tests.surface DIR` before and after a change, then `diff -r`.
"""
