"use strict";
// Reads the page again every ten seconds while somebody looks at it and nobody types.
setInterval(async () => {
  const active = document.activeElement;
  if (document.hidden || (active && active.form)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (fresh) document.querySelector("main").replaceWith(fresh);
  } catch (gone) {
    // The worker restarts: what is shown stays, and the next try finds it.
  }
}, 10000);
