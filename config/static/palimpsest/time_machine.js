// Lets people choose a moment of the Time Machine with a slider or with the mouse, loads the preview beside it, and fills
// in the form. The form's date is in local time, and the browser sends UTC.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const field = document.querySelector("input[name=moment]");
  const inField = (at) => new Date(at - 60_000 * new Date(at).getTimezoneOffset()).toISOString().slice(0, 19);
  if (field) {
    const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts();
    field.labels[0].textContent = `Date and time (${parts.find(({ type }) => type === "timeZoneName").value})`;
    if (field.defaultValue) field.value = inField(Date.parse(`${field.defaultValue}Z`));
    field.form.addEventListener("formdata", ({ formData }) => {
      if (formData.get("moment")) formData.set("moment", new Date(field.value).toISOString());
    });
  }
  const slider = document.getElementById("time-slider");
  if (!slider) return;
  const output = document.getElementById("time-chosen"), panel = document.getElementById("time-panel");
  const svg = document.querySelector("#time-chart .pal-svg"), span = slider.max - slider.min;
  const parts = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const format = new Intl.DateTimeFormat(undefined, { ...parts, timeZoneName: "short" });
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "pal-chosen");
  line.setAttribute("y2", "100%");
  svg.append(line);
  slider.hidden = false;
  panel.textContent = "The preview appears here. Or choose below what to undo.";
  const steps = JSON.parse(slider.dataset.steps); // of the chart: [time, tokens]
  let waiting = 0, asked = 0;

  function show() {
    for (const end of ["x1", "x2"]) line.setAttribute(end, `${(100 * (slider.value - slider.min)) / span}%`);
    const step = steps.findLast(([at]) => at <= slider.value);
    output.textContent = format.format(Number(slider.value)) + (step ? `: ${step[1].toLocaleString()} tokens` : "");
    slider.setAttribute("aria-valuetext", output.textContent);
  }

  function choose() {
    show();
    field.form.elements.kind.value = "moment";
    field.form.elements.kind.dispatchEvent(new Event("change", { bubbles: true })); // shows the field
    field.value = inField(Number(slider.value));
    clearTimeout(waiting);
    waiting = setTimeout(load, 300, new Date(Number(slider.value)).toISOString(), ++asked);
  }

  async function load(moment, number) {
    const response = await fetch(`${panel.dataset.url}?kind=moment&moment=${moment}&panel=1`);
    if (!response.ok || response.redirected || number !== asked) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    panel.replaceChildren(...page.body.childNodes);
  }

  slider.addEventListener("input", choose);
  svg.addEventListener("click", (event) => {
    if (event.target.closest("a")) return;
    const box = svg.getBoundingClientRect();
    slider.value = Number(slider.min) + (span * (event.clientX - box.left)) / box.width;
    choose();
  });
  show();
});
