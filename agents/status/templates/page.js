"use strict";
// Reads the page again every ten seconds while somebody looks at it and nobody types. What is open or has the focus stays so.
const reached = () => [...document.querySelectorAll("main a, main summary, main .scroll")];
setInterval(async () => {
  const active = document.activeElement;
  if (document.hidden || (active && active.form)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    for (const each of document.querySelectorAll("main details[open]")) {
      const same = [...fresh.querySelectorAll("details")].find(other => other.id === each.id);
      if (same) same.open = true;
    }
    const place = reached().indexOf(active);
    document.querySelector("main").replaceWith(fresh);
    if (place >= 0 && reached()[place]) reached()[place].focus({ preventScroll: true });
  } catch (gone) {
    // The worker restarts: what is shown stays, and says how old it is. The next try finds it.
    const of = document.querySelector("#asof");
    if (!of.classList.contains("bad")) of.textContent = "no answer since; " + of.textContent;
    of.classList.add("bad");
  }
}, 10000);
