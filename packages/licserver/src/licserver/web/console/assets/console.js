// Live search, upload progress and focus; everything else works without JavaScript.
"use strict";

// Show the progress of an upload.
document.addEventListener("htmx:xhr:progress", (event) => {
  const form = event.target.closest("form[data-upload]");
  if (!form || !event.detail.lengthComputable) return;
  const bar = form.querySelector("progress");
  const share = Math.floor((100 * event.detail.loaded) / event.detail.total);
  bar.hidden = false;
  bar.value = share;
  const text = share < 100 ? `${share} % sent` : "Sent. The server is checking and storing it …";
  const place = form.querySelector(".progress-text");
  if (place.textContent !== text) place.textContent = text;
});

// A license key must not be in an address: submit a whole one as a form, and wait for Enter after a part of one.
document.addEventListener("htmx:configRequest", (event) => {
  const form = event.target.closest("form#search");
  const typed = form?.querySelector("#q").value.trim() ?? "";
  if (!/^cp-|(-[a-z0-9]{6}){2}/i.test(typed) || /…|\.\.|\*\*/.test(typed)) return;
  event.preventDefault();
  if (/cp(-[a-z0-9]{6}){5}(?![a-z0-9-])/i.test(typed)) form.submit();
});

// Show a failed upload at its form.
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    const place = event.target.querySelector?.(".progress-text");
    if (place) place.textContent = "The connection was lost. Try again; if that fails, sign in in another window first.";
  });
}

// Keep the focus after a swap: at the message, if there is one.
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.id === "main") (event.target.querySelector("[role=alert]") ? event.target : document.body).focus();
});

// Copy a key; without JavaScript, or where the browser does not allow it, a click selects it.
const prepareCopy = () => document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = !navigator.clipboard; });
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("output").textContent);
  button.parentElement.querySelector("[role=status]").textContent = "Copied.";
});
prepareCopy();

// "/" goes to the search, and the arrows from there through the list.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("main [type=search]");
  const isTyping = event.target.matches?.("input, textarea, select");
  if (event.key === "/" && search && !isTyping) {
    event.preventDefault();
    search.select();
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const places = [search, ...document.querySelectorAll("main .rows tbody tr th a")];
  const at = places.indexOf(event.target);
  if (!step || at < 0 || !places[at + step]) return;
  event.preventDefault();
  places[at + step].focus();
});
