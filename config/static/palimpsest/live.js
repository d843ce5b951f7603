// Loads the parts of a page again while something runs: <section data-live="URL" data-part="NAME" id="part-NAME">. It
// stops when no new part has data-live. It also scrolls wide pictures with data-from-own to the page's own memories.
"use strict";
(() => {
  const SECONDS = 3;
  async function refresh(part) {
    if (document.hidden) return setTimeout(refresh, SECONDS * 1000, part);
    try {
      const response = await fetch(part.dataset.live, { headers: { "X-Requested-With": "XMLHttpRequest" } });
      if (!response.ok || response.redirected) return;
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const old of document.querySelectorAll("[data-part]")) {
        const fresh = page.getElementById(old.id);
        if (fresh && !old.isEqualNode(fresh) && !old.querySelector("details[open]")) old.replaceWith(fresh);
      }
    } catch {
      /* the service may restart: try again */
    }
    start();
  }
  const scroll = () =>
    document.querySelectorAll("[data-from-own]").forEach((each) => {
      const own = each.querySelector(".pal-own").getBoundingClientRect();
      each.scrollLeft += own.left + own.width / 2 - each.getBoundingClientRect().left - each.clientWidth / 2;
    });
  const start = () => {
    const part = document.querySelector("[data-live]");
    if (part) setTimeout(refresh, SECONDS * 1000, part);
  };
  addEventListener("load", scroll);
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
