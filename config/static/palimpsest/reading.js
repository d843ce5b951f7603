// Removes the content from the page when the grant ends. The server shows nothing after that time. This script covers a
// page that stays open, a computer that sleeps, and a page that the browser restores from its cache.
"use strict";
(() => {
  const clock = document.querySelector("[data-until]");
  if (!clock) return;
  const until = Number(clock.dataset.until);
  const serverNow = Number(clock.dataset.now);
  const offset = serverNow - Date.now(); // between the server's clock and this computer's
  const start = performance.now();

  // Use both clocks: one stops while some computers sleep, the user can set back the other.
  const remaining = () => Math.min(until - Date.now() - offset, until - serverNow - (performance.now() - start));

  const clear = (message) => {
    document.querySelectorAll("[data-clear]").forEach((element) => element.remove());
    document.querySelector("[data-message]").textContent = message;
    clearInterval(timer);
  };

  const format = (seconds) => {
    const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
    return parts.map((part) => String(part).padStart(2, "0")).join(":");
  };

  const tick = () => {
    const seconds = Math.ceil(remaining() / 1000);
    const countdown = document.querySelector("[data-remaining]");
    if (seconds <= 0) clear("The grant has ended. The content was removed from this page.");
    else if (countdown) countdown.textContent = `(${format(seconds)} left)`;
  };

  const timer = setInterval(tick, 1000);
  addEventListener("pageshow", (event) => {
    if (event.persisted && document.querySelector("[data-content]"))
      clear("You left this page, so its content was removed. Go to the grant’s page to read it again.");
    tick();
  });
  ["focus", "resume"].forEach((name) => addEventListener(name, tick));
  ["visibilitychange", "resume"].forEach((name) => document.addEventListener(name, tick));
  tick();
})();
