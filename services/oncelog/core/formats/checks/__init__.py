"""Whether entries of gateways' clients are as most of them are, without reading them as readers do."""
