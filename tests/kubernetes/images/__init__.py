"""Images, and the recipe of docker compose."""
