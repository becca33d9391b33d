"""The jobs export, import and compact under real kills: `python -m tests.jobs_proof`, or `make jobs-proof`."""
