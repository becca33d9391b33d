"""The console at /console/: pages that the server renders from answers of REST, with the rights of the caller.

It has no knowledge of its own: a figure that no REST call has is a REST call first. It imports no store, no client and
no coordination; a rule in `pyproject.toml` holds that.

To add a page
1. `pages/NAME.py`: `async def collect(view) -> dict` asks for all its answers at once, `await view.read_all(rest_path(
   "/admin/v2/…/{}", part, limit=50), …)`. Each is a `Block`: `.value` (the JSON; None: unknown), `.problem`, `.known`.
   Look before you ask: a call that places a topic is made only if `/stats` names an owner. Path parts are `view.parts`
   (and `view.topic`), the query is `view.query`; what is invalid there, REST refuses, and the block says so.
   `PAGE = Page(path, title, template, collect)` is added to `PAGES` in `pages/__init__.py`.
2. `templates/NAME.html` extends base.html and imports what it uses of parts.html `with context`. Each
   `{% call block("id", "Title", [reads]) %}` is a section with its problem and its curl lines, and live by its id. A
   name that is not there fails: write `row.get("field")` for a field that an older process may not send.
3. Attributes are quoted, and no template has `style=`, `<style>`, an inline script or `on…=`: the CSP forbids them.
4. `view.may("admin", "tenant/namespace")` tells which actions to show; REST checks each of them again. An action is a
   link to a page that says what is lost and asks; `actions/__init__.py` says how to add one.
5. `tests/contract/rest/console/test_NAME.py`: `async with serving() as console: await console.page("/console/…")`.
"""
