// Shows times in the reader's own time zone. The server writes <time datetime="…" title="… UTC">… UTC</time>. If the text
// has no hours, this script shows only the date. The title stays, so the mouse pointer shows the time in UTC. Without
// this script, the page shows UTC.
"use strict";
(() => {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  if (/^(Etc\/)?(UTC|UCT|GMT|Universal|Zulu|Greenwich)$/.test(timeZone)) return;

  const parts = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  const date = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  const short = new Intl.DateTimeFormat(undefined, { ...parts, timeZoneName: "short" });
  const long = new Intl.DateTimeFormat(undefined, { ...parts, second: "2-digit", timeZoneName: "short" });

  const show = () =>
    document.querySelectorAll('time[datetime*="T"]:not([data-local])').forEach((element) => {
      const format = [date, short, long][element.textContent.split(":").length - 1]; // by the number of colons
      element.dataset.local = ""; // changed once, although the observer calls this function again
      element.textContent = format.format(new Date(element.dateTime));
    });

  addEventListener("DOMContentLoaded", () => {
    show();
    new MutationObserver(show).observe(document.body, { childList: true, subtree: true }); // parts that come later
  });
})();
