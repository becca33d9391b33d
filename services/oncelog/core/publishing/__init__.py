"""Publishing at the owner: sessions of producers, which batches are new, and the log that stores them."""
