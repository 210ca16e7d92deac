// Looks again every two seconds while somebody looks at it. The key, if one is asked for, stays in this variable.
(() => {
  let key = "", waits = 0;
  const form = document.getElementById("key"), state = document.getElementById("state"), words = state.textContent;
  const look = async () => {
    clearTimeout(waits);
    try {
      const headers = key ? { "x-api-key": key } : {};
      const answer = await fetch(location.pathname, { headers, cache: "no-store" });
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (!found) throw new Error(answer.status);
      if (answer.status === 401 && key) found.textContent = "No tenant has this key.";
      const now = document.querySelector("main");
      for (const one of now.querySelectorAll("details[open]")) found.querySelector("#" + CSS.escape(one.id))?.setAttribute("open", "");
      now.replaceWith(document.adoptNode(found));
      state.textContent = words;
      state.className = "";
    } catch {
      state.textContent = "The gateway doesn't answer; these are its last words.";
      state.className = "lost";
    }
    waits = setTimeout(look, 2000);
  };
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    key = form.querySelector("input").value;
    look();
  });
  // A link can't take the key along: a ticket for this one report can.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a.report");
    if (!link || !key) return;
    event.preventDefault();
    const answer = await fetch(link.getAttribute("href") + "?open=1", { headers: { "x-api-key": key }, cache: "no-store" });
    if (answer.ok) location.assign((await answer.json()).at);
  });
  document.addEventListener("visibilitychange", () => document.hidden ? clearTimeout(waits) : look());
  waits = setTimeout(look, 2000);
})();
