"""What operators see of an owner: metrics, lists and states of topics."""
