"""The fault injectors: one for processes of this machine, one for a release in Kubernetes."""
