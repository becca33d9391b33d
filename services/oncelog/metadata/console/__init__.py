"""The console at /console/: pages that the server renders from answers of REST, with the rights of the caller."""
