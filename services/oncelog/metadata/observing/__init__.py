"""Views of the whole cluster for operators: lists from all owners, figures of a day, dependencies, certificates."""
