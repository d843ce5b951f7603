// The data of Unfold's pages, for the build of Alpine that works without 'unsafe-eval'. It finds no global functions.
"use strict";
document.addEventListener("alpine:init", () => {
  Alpine.data("theme", () => theme("auto"));
  Alpine.data("searchForm", searchForm);
  Alpine.data("page", () => ({
    activeTab: "general",
    sidebarMobileOpen: false,
    sidebarDesktopOpen: localStorage.getItem("sidebarDesktopOpen") !== "0",
    init() {
      this.$watch("sidebarDesktopOpen", (open) => localStorage.setItem("sidebarDesktopOpen", open ? "1" : "0"));
      // The theme hides the page until its scripts have run, and `autofocus` acts before that.
      this.$nextTick(() => document.querySelector("#login-form [name=username]")?.focus());
    },
  }));
});
