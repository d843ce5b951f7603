// Shows times in the time zone of the browser, and UTC on hover. Pages have <time datetime> elements in UTC.
"use strict";
(() => {
  const two = (number) => String(number).padStart(2, "0");
  const local = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  function show(root) {
    for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      time.title = time.textContent;
      if (at.getTimezoneOffset() !== 0) time.textContent = local(at);
    }
  }
  const start = () => {
    show(document);
    new MutationObserver(() => show(document)).observe(document.body, { childList: true, subtree: true });
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
