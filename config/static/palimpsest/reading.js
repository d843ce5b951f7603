// Takes what is shown off the page when the grant's time is over. The service itself shows nothing after that; this is
// for the page that was left open, the machine that slept, and the one that comes back by the browser's own memory.
"use strict";
(() => {
  const clock = document.querySelector("[data-until]");
  if (!clock) return;
  const until = Number(clock.dataset.until);
  const told = Number(clock.dataset.now);
  const ahead = told - Date.now(); // of this machine's clock, whatever that is set to
  const began = performance.now();

  // By both clocks: one stands still while some machines sleep, the other can be set back.
  const left = () => Math.min(until - Date.now() - ahead, until - told - (performance.now() - began));

  const clear = (why) => {
    document.querySelectorAll("[data-clear]").forEach((each) => each.remove());
    document.querySelector("[data-why]").textContent = why;
    clearInterval(ticking);
  };

  const written = (seconds) => {
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return parts.map((part) => String(part).padStart(2, "0")).join(":");
  };

  const tick = () => {
    const seconds = Math.ceil(left() / 1000);
    const shown = document.querySelector("[data-left]");
    if (seconds <= 0) clear("The grant’s time is over. What was shown here was taken off the page.");
    else if (shown) shown.textContent = `(${written(seconds)} left)`;
  };

  const ticking = setInterval(tick, 1000);
  addEventListener("pageshow", (event) => {
    if (event.persisted && document.querySelector("[data-said]"))
      clear("You left this page, and what it showed was taken off it. Read it again on the grant’s page.");
    tick();
  });
  ["focus", "resume"].forEach((name) => addEventListener(name, tick));
  ["visibilitychange", "resume"].forEach((name) => document.addEventListener(name, tick));
  tick();
})();
