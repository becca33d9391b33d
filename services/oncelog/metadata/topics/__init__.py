"""Topics by their names: look-up, calls to the owner of a topic wherever it is, more partitions, deletion."""
