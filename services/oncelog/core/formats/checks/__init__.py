"""What is known of an entry of a gateway's client before it is read as readers do."""
