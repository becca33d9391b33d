"""Pictures of pages, to be looked at by a person: in three widths, light and dark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from playwright.async_api import Browser, expect

Scheme = Literal["light", "dark"]
WIDTHS = (360, 1280, 2560)
_HEIGHT = 900
_LIVE_MS = 10_000


async def take_pictures(
    browser: Browser,
    base: str,
    paths: dict[str, str],
    directory: Path,
    state: str,
    *,
    token: str | None = None,
    widths: Sequence[int] = WIDTHS,
    schemes: Sequence[Scheme] = get_args(Scheme),
) -> None:
    """DIRECTORY/STATE-PAGE-WIDTH-SCHEME.png of each page, whole. paths: {page: path}. token: of a login."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    for scheme in schemes:
        for width in widths:
            context = await browser.new_context(
                base_url=base,
                color_scheme=scheme,
                viewport={"width": width, "height": _HEIGHT},
                extra_http_headers=headers,
            )
            async with context:
                for name, path in paths.items():
                    page = await context.new_page()
                    answer = await page.goto(path)
                    if await page.locator("body[data-live]").count():
                        # The page says whether it is live, and why not.
                        await expect(page.locator("#live")).not_to_contain_text("one moment", timeout=_LIVE_MS)
                    file = f"{state}-{name.replace(' ', '-')}-{width}-{scheme}.png"
                    await page.screenshot(path=directory / file, full_page=True)
                    print(f"{answer and answer.status} {path} -> {file}", flush=True)
                    await page.close()
