"use strict";
/* Copy buttons, long lists, print. Every text is data: written by textContent only. */
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (query) => document.querySelectorAll(query);
  document.documentElement.classList.add("js");

  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  for (const button of all("[data-copy]")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const node = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(node.textContent);
        button.textContent = "Copied";
      } catch {
        select(node); /* a file without clipboard: the text is selected, Ctrl+C takes it */
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = label; }, 1600);
    });
  }

  for (const button of all("[data-all]")) {
    const label = button.textContent;
    button.addEventListener("click", () => {
      const open = byId(button.dataset.all).classList.toggle("all");
      button.textContent = open ? button.dataset.few : label;
      button.setAttribute("aria-expanded", String(open));
    });
  }

  addEventListener("beforeprint", () => {
    for (const node of all("details")) { node.dataset.was = String(node.open); node.open = true; }
  });
  addEventListener("afterprint", () => {
    for (const node of all("details")) node.open = node.dataset.was === "true";
  });
})();
