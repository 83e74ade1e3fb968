"""Markdown of agents and users becomes formatted text without active content."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.ui.conftest import OpenPage
from tests.ui.stage import Stage
from tests.ui.test_safety import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = """# Report for **Oulu**

Two lines
of one paragraph with `code`, *emphasis*, ~~old~~ and snake_case_name.

- first
  - nested
    1. deep
- [x] done
- [ ] open

| city | guests |
|:-----|-------:|
| Oulu | 2 |
| `a` Turku \\| Åbo | 4 |

> quoted
> > twice

```python
print("<b>not bold</b>")
```

See [the site](https://example.org/a_b) or https://example.org/x, and <mailto:a@example.org>.

![chart](https://example.org/chart.png) ![dot](data:image/png;base64,iVBORw0KGgo=)

---
Last \\*line\\*
"""

RENDER = """async (text) => {
  const { markdown } = await import(new URL("js/markdown.js", document.baseURI).href);
  const started = performance.now();
  const node = markdown(text);
  const milliseconds = performance.now() - started;
  document.querySelector("main").replaceChildren(node);
  const all = (query, value) => [...node.querySelectorAll(query)].map(value);
  return {
    milliseconds,
    text: node.textContent,
    depth: (function deep(each) { return 1 + Math.max(0, ...[...each.children].map(deep)); })(node),
    links: all("a", (each) => [each.href, each.rel, each.target]),
    images: all("img", (each) => each.src),
    tags: [...new Set(all("*", (each) => each.tagName.toLowerCase()))].sort(),
    handlers: all("*", (each) => each.getAttributeNames().filter((name) => /^on|style|srcdoc/.test(name))).flat(),
  };
}"""
INLINE = {"a", "br", "button", "code", "del", "em", "img", "span", "strong"}
BLOCKS = {"blockquote", "div", "figcaption", "figure", "hr", "li", "ol", "p", "pre", "ul"}
TABLE = {"table", "tbody", "td", "th", "thead", "tr"}


async def render(page: Page, text: str) -> dict[str, Any]:
    found: dict[str, Any] = await page.evaluate(RENDER, text)
    assert set(found["tags"]) <= INLINE | BLOCKS | TABLE
    assert not found["handlers"]
    assert all(href.startswith(("http://", "https://", "mailto:")) for href, _, _ in found["links"])
    assert all((rel, target) == ("noopener noreferrer", "_blank") for _, rel, target in found["links"])
    assert all(src.startswith("data:image/") for src in found["images"])
    return found


async def test_it_is_formatted(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    found = await render(page, TEXT)
    md = page.locator(".md")
    await expect(md.locator(".md-heading strong")).to_have_text("Oulu")
    await expect(md.locator("> ul > li > ul > li > ol > li")).to_have_text("deep")
    await expect(md.locator("li.md-task")).to_have_text(["☑ done", "☐ open"])
    await expect(md.locator("td.md-right")).to_have_text(["2", "4"])
    await expect(md.locator("blockquote blockquote")).to_have_text("twice")
    await expect(md.locator("pre")).to_have_text('print("<b>not bold</b>")')
    await expect(md.locator("em")).to_have_text("emphasis")
    await expect(md.locator("del")).to_have_text("old")
    assert "snake_case_name" in found["text"]
    assert "Last *line*" in found["text"]
    assert [href for href, _, _ in found["links"]] == [
        "https://example.org/a_b",
        "https://example.org/x",
        "mailto:a@example.org",
        "https://example.org/chart.png",  # an external image becomes a link: the page fetches nothing
    ]
    assert len(found["images"]) == 1


EVIL = (
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>",
    "[x](javascript:window.hacked=1) [y](JaVaScRiPt:alert(1)) [z](&#106;avascript:alert(1)) [t](\tjavascript:a)",
    "[x](data:text/html;base64,PHNjcmlwdD4=) ![x](data:image/svg+xml;base64,PHN2Zz4=) <javascript:alert(1)>",
    "![x](javascript:alert(1)) [x](vbscript:a) [x](//example.org) [x](/keelbolt/v1/tasks) [x](#/agent)",
    '[x](https://e.org" onclick="window.hacked=1) [a](https://e.org\'onmouseover=window.hacked=1)',
    "[a](https://x [b](javascript:alert(1)) ](y) [[[a]](b)](c) ![[x](y)](z)",
    "```<script>\n</code></pre><script>window.hacked=1</script>\n```",
    "| <b>x</b> | [x](javascript:a) |\n|---|---|\n| <img src=x> | `</td>` |",
    "> <iframe srcdoc='<script>window.hacked=1</script>'>\n- <svg onload=window.hacked=1>",
)


async def test_no_active_content_is_rendered(agent: Stage, open_page: OpenPage) -> None:
    """`render` finds no source tags, no URL that executes or embeds content, and no attribute."""
    page = await open_page(agent.at())
    for text in EVIL:
        found = await render(page, text)
        assert not found["images"]
        if "<script>" in text:
            assert "window.hacked" in found["text"]  # shown as text


LARGE = (
    "a" * 200_000,
    "*a " * 60_000,
    "**a*" * 50_000,
    "[" * 100_000 + "](x)",
    "![" * 50_000 + "](javascript:a)",
    "`a``b" * 40_000,
    "> " * 50_000 + "x",
    "- " * 50_000 + "x",
    "\n".join(" " * number + "- x" for number in range(600)),
    "| a " * 20_000 + "|\n" + "|-" * 20_000 + "|\n" + "| b " * 20_000,
    "# " + " " * 100_000 + "x",
    "-" + " " * 100_000 + "x\n" * 2,
    "a|b\n-" + " " * 100_000 + "|x",
    "https://" * 20_000,
    "<https://" * 20_000,
    "\\" * 150_000,
    "```\n" * 30_000,
    "[a](b" + " " * 100_000 + '"',
)


async def test_large_and_malformed_input_takes_linear_time(agent: Stage, open_page: OpenPage) -> None:
    page = await open_page(agent.at())
    for number, text in enumerate(LARGE):
        found = await render(page, text)
        assert found["milliseconds"] < 5000, number  # quadratic time would be minutes
        assert found["depth"] < 40, number


async def test_a_task_shows_formatted_text(agent: Stage, open_page: OpenPage) -> None:
    """The conversation has a button for the source; JSON in a text is a tree, and text/plain stays plain."""
    task_id = await agent.send(f"markdown {TEXT}")
    page = await open_page(agent.at(f"tasks/{task_id}"), bypass_csp=True)
    result = page.locator(".artifact-card").filter(has=page.locator("h3", has_text="report"))
    await expect(result.locator("table")).to_be_visible()
    await result.get_by_role("button", name="Source").click()
    await expect(result).to_contain_text("~~old~~")
    await result.get_by_role("button", name="Formatted").click()
    await expect(result.locator("table")).to_be_visible()
    assert not await check(page)
    plain = page.locator(".artifact-card").filter(has=page.locator("h3", has_text="plain"))
    await expect(plain).to_contain_text("**as it is**")
    parsed = page.locator(".artifact-card").filter(has=page.locator("h3", has_text="parsed"))
    await expect(parsed.locator(".json .key").first).to_contain_text("a")
