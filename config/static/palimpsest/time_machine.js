// Lets people choose a moment of the Time Machine with a slider or with the mouse, and loads the preview beside it.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const slider = document.getElementById("time-slider");
  if (!slider) return;
  const chart = document.getElementById("time-chart"), panel = document.getElementById("time-panel");
  const output = document.getElementById("time-chosen"), svg = chart.querySelector("svg");
  const points = JSON.parse(document.getElementById("time-points").textContent);
  const { left, right, width } = chart.dataset;
  const first = Date.parse(points[0].at), span = Math.max(1000, Number(points[0].until) - first);
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "pal-chosen");
  svg.append(line);
  slider.hidden = false;
  let waiting = 0, asked = 0;

  function choose() {
    const point = points[slider.value], at = new Date(point.at);
    const x = Number(left) + (right - left) * Math.min(1, (at - first) / span);
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", 0], ["y2", svg.viewBox.baseVal.height]]) line.setAttribute(name, value);
    const text = `Entry ${point.seq}, ${at.toLocaleString()}, ${point.tokens.toLocaleString("en")} tokens`;
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    clearTimeout(waiting);
    waiting = setTimeout(load, 300, point.seq, ++asked);
  }

  async function load(seq, number) {
    const response = await fetch(`${panel.dataset.url}?kind=since_entry&at=${seq}&panel=1`);
    if (!response.ok || response.redirected || number !== asked) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    panel.replaceChildren(...page.body.childNodes);
  }

  slider.addEventListener("input", choose);
  svg.addEventListener("click", (event) => {
    if (event.target.closest("a")) return;
    const box = svg.getBoundingClientRect();
    const at = first + (span * (((event.clientX - box.left) / box.width) * width - left)) / (right - left);
    const later = points.findIndex((point) => Date.parse(point.at) > at);
    slider.value = later < 0 ? points.length - 1 : Math.max(0, later - 1);
    choose();
  });
});
