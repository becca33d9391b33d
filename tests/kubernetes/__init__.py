"""The chart: what needs no cluster here, and what runs on one."""
