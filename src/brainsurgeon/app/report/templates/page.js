"use strict";
// A link to an outcome opens it; printing opens all.
const reveal = () => {
  const part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (part && part.tagName === "DETAILS") { part.open = true; part.scrollIntoView(); }
};
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => document.querySelectorAll("details.outcome").forEach((part) => { part.open = true; }));
reveal();
