"""The oracles: the rules that every history and every log must satisfy, whatever faults happened.

The simulation checks the history of a run and the entries of its storage nodes with them, and the audit checks the log
of a real cluster. A `Violation` names the broken rule.
"""
