// Makes pages live. Every page can be read without this file.

document.documentElement.classList.add("js");
// Browsers have no clipboard for plain HTTP, except of this machine.
document.documentElement.classList.toggle("no-clipboard", !navigator.clipboard);

// The filter box: hides the rows that do not contain its text, also those that come later.
const box = document.querySelector(".filter");
function filter() {
  const wanted = box?.value.toLowerCase() ?? "";
  for (const row of document.querySelectorAll("table[data-rows] tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
}
// Its text is in the address, so that a link shows the same rows.
if (box) box.value = new URL(location.href).searchParams.get("rows") ?? "";
box?.addEventListener("input", () => {
  const url = new URL(location.href);
  if (box.value) url.searchParams.set("rows", box.value);
  else url.searchParams.delete("rows");
  history.replaceState(null, "", url);
  filter();
});
filter();

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const icon = button.innerHTML;
  button.disabled = true;
  button.textContent = "copied";
  setTimeout(() => { button.innerHTML = icon; button.disabled = false; }, 1000);
});

// Keys: / to the filter, g and a letter to a page, arrows between the links of rows.
let goes = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (goes) {
    goes = false;
    document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
  } else if (event.key === "g") {
    goes = true;
  } else if (event.key === "/" && box) {
    event.preventDefault();
    box.focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const rows = [...(event.target.closest(".scroll")?.querySelectorAll("tbody tr:not([hidden])") ?? [])];
    const linked = rows.filter((each) => each.querySelector("a"));
    const at = linked.indexOf(event.target.closest("tbody tr"));
    const next = linked[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.querySelector("a").focus();
    }
  }
});

// Live fragments: each event replaces one block. What the viewer has opened, focused or selected stays.
function place(id, html) {
  const old = document.getElementById(id);
  const selection = document.getSelection();
  if (!old || (!selection.isCollapsed && old.contains(selection.anchorNode))) return;
  const holder = document.createElement("template");
  holder.innerHTML = html;
  const fresh = holder.content.firstElementChild;
  const opened = new Map([...old.querySelectorAll("details")].map((each, at) => [each.id || at, each.open]));
  [...fresh.querySelectorAll("details")].forEach((each, at) => { each.open = opened.get(each.id || at) ?? each.open; });
  const focusable = "a, button, summary, [tabindex]";
  const focused = [...old.querySelectorAll(focusable)].indexOf(document.activeElement);
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  old.replaceWith(fresh);
  [...fresh.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
  if (focused >= 0) fresh.querySelectorAll(focusable)[focused]?.focus({ preventScroll: true });
  filter();
}

const url = document.body.dataset.live;
const line = document.getElementById("live");
let stream = null;
function tell(text) {
  if (line.textContent !== text) line.textContent = text;
}
function open() {
  stream?.close();
  stream = new EventSource(url);
  stream.onopen = () => tell("live");
  stream.onmessage = (event) => {
    const { id, html, blocks } = JSON.parse(event.data);
    if (blocks) compare(blocks);
    else place(id, html);
  };
  stream.addEventListener("end", (event) => {
    const { code, detail } = JSON.parse(event.data);
    stream.close();
    if (code === "unauthenticated") location.reload(); // leads to the login
    tell(`not live: ${detail}`);
    setTimeout(resume, 5000);
  });
  stream.onerror = async () => {
    tell("not live: no connection to the server");
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    // Refused: either the login has ended, or too many pages are open.
    const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
    if (answer?.type === "opaqueredirect") location.reload();
    tell("not live: too many pages are open, or the server does not answer");
    setTimeout(resume, 10000);
  };
}
// Blocks have come or gone: load the page again, not more often than each 5 s, and not while the viewer types.
function compare(blocks) {
  const shown = [...document.querySelectorAll("section.block[id]")].map((each) => each.id);
  if (shown.join(" ") === blocks.join(" ")) return;
  if (document.activeElement?.matches("input, textarea, select")) tell("live; this page has other parts now: reload it");
  else setTimeout(() => location.reload(), Math.max(0, 5000 - performance.now()));
}
function resume() {
  if (!document.hidden && (stream === null || stream.readyState === EventSource.CLOSED)) open();
}
if (url) {
  resume();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream?.close();
    else resume();
  });
}
