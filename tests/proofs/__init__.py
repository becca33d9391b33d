"""The harness of the proofs. A proof starts a cluster, a load and a schedule of faults, and asks oracles at the end.

    cluster    `tests.cluster.cluster_fixture.Cluster`
    load       a file that is published once (`source_topic`), or producers that go on (`under_load`)
    schedule   faults in order, drawn from a seed, each with the condition at which it is injected (`killed_run`)
    oracle     what the targets hold, compared with what they must hold (`flights`), and what else a proof looks at
    report     the matrix of faults, the counts, and the verdict (`report`)

The proofs are the folders `tests/*_proof`: each has its schedule and its oracles, and nothing of the above.
"""
