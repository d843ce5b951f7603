// Hides the fields of a form that another field makes useless. Such a field names the other field and the value that it
// needs, or several values with spaces between them (AdminForm.shown_if). The browser does not send a hidden field. If
// the other field has radio buttons, the field moves below its button. Without this script, the form shows all fields.
"use strict";
(() => {
  const fields = document.querySelectorAll("[data-shown-if]");

  fields.forEach((field) => {
    const { shownIf, shownValue } = field.dataset;
    const button = field.form.querySelector(`[type=radio][name="${shownIf}"][value="${shownValue}"]`);
    button?.closest("div").append(field.closest(".pal-field"));
  });

  const update = () =>
    fields.forEach((field) => {
      const { shownIf, shownValue } = field.dataset;
      const isShown = shownValue.split(" ").includes(field.form.elements[shownIf].value);
      field.closest(".pal-field").hidden = field.disabled = !isShown;
    });

  document.addEventListener("change", update);
  addEventListener("pageshow", update); // the browser may have restored the form
  update();
})();
