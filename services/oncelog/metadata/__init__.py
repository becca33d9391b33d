"""The metadata service: a room for each of its roles. `replica` and `service` connect them."""
