// Copy a license key; without JavaScript, or where the browser does not allow it, a click selects it.
"use strict";

document.querySelectorAll("[data-copy]").forEach((button) => {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("output").textContent);
    button.parentElement.querySelector("[role=status]").textContent = button.dataset.done;
  });
});
