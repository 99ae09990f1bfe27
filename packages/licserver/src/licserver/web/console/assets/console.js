// All that the console does by itself in a browser; everything works without it.
"use strict";

// How far an upload is. htmx tells; the form has a place for it.
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

// A license key is no part of an address: a whole one is sent with the form, the beginning of one is waited for.
document.addEventListener("htmx:configRequest", (event) => {
  const form = event.target.closest("form#search");
  const typed = form?.querySelector("#q").value.trim() ?? "";
  if (!/^cp-/i.test(typed)) return;
  event.preventDefault();
  if (/^cp(-[a-z0-9]{6}){5}$/i.test(typed)) form.submit();
});

// What went wrong on the way is said where it was begun.
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    const place = event.target.querySelector?.(".progress-text");
    if (place) place.textContent = "The connection broke off. Try again; if that fails, sign in in another window first.";
  });
}

// After a swap the focus would be lost: a problem is where to read on.
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.id === "main") (event.target.querySelector("[role=alert]") ? event.target : document.body).focus();
});
