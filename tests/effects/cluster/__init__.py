"""What programs, mirrors and commands of effects do with a running cluster."""
