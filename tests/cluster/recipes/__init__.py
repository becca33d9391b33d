"""The programs of docs/recipes.md run as they stand there, are killed, and are exact."""
