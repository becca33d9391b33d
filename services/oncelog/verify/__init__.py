"""The oracles: the rules that every history and every log must satisfy, whatever faults happened.

The simulation checks the history of a run and the entries of its storage nodes with them. The proof of a topic
(`metadata.proof`) and the audit on Spark check the log of a real cluster: each folds entries (`range_fold`), and gives
the sums to `topic_check.LogJoin`, which joins, compares and judges. A `Violation` names the broken rule.
"""
