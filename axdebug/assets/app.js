"use strict";
// The page works without this file. With it, the server's own rendering of the
// content arrives once a second and is patched in, element by element, so that
// focus, selection and scroll position stay.
(() => {
  const byId = (id) => document.getElementById(id);
  const link = byId("link"), freeze = byId("freeze"), problem = byId("problem");
  const filter = byId("filter"), clear = byId("clear");
  let source = null, frozen = false, seen = performance.now();

  const say = (state, text) => {
    if (link.dataset.state === state && link.textContent === text) return;
    link.dataset.state = state;
    link.textContent = text;
  };

  // patch makes node like next. Elements with data-key are recognized wherever
  // they stand; those with data-keep belong to this script.
  const patch = (node, next) => {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== next.data) node.data = next.data;
      return;
    }
    if (node.hasAttribute("data-keep")) return;
    for (const { name, value } of next.attributes) {
      if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    for (const { name } of [...node.attributes]) {
      if (!next.hasAttribute(name)) node.removeAttribute(name);
    }
    patchChildren(node, next);
  };

  const keyOf = (n) => (n.nodeType === Node.ELEMENT_NODE && n.dataset ? n.dataset.key : undefined);

  const patchChildren = (node, next) => {
    const wanted = new Set(), have = new Map();
    for (const n of next.childNodes) if (keyOf(n) !== undefined) wanted.add(keyOf(n));
    for (const n of [...node.childNodes]) {
      const key = keyOf(n);
      if (key === undefined) continue;
      if (wanted.has(key)) have.set(key, n);
      else n.remove();
    }
    let at = node.firstChild;
    for (const n of [...next.childNodes]) {
      const key = keyOf(n);
      let match = key === undefined ? at : have.get(key);
      if (match && (match.nodeName !== n.nodeName || keyOf(match) !== key)) match = null;
      if (!match) {
        node.insertBefore(n, at);
        continue;
      }
      if (match === at) at = at.nextSibling;
      else node.insertBefore(match, at);
      patch(match, n);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  const show = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html").querySelector("main");
    if (!next) return;
    patch(byId("content"), next);
    seen = performance.now();
    say("live", "Live");
  };

  const connect = () => {
    if (source) source.close();
    source = null;
    if (frozen || document.hidden) return;
    source = new EventSource("live" + location.search);
    source.addEventListener("page", (e) => { if (!frozen) show(e.data); });
    source.onerror = () => {
      say("lost", "No connection since " + byId("clock").textContent + " – trying again");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    };
  };

  freeze.hidden = false;
  freeze.addEventListener("click", () => {
    frozen = !frozen;
    freeze.setAttribute("aria-pressed", String(frozen));
    if (frozen) say("still", "Frozen at " + byId("clock").textContent);
    connect();
  });
  document.addEventListener("visibilitychange", connect);
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (e) => { if (e.persisted) connect(); });

  // Filters act as they are typed, and stay in the address.
  let typing = 0;
  const apply = () => {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(filter)) if (value.trim()) query.set(name, value.trim());
    const search = query.toString();
    history.replaceState(null, "", search ? "?" + search : location.pathname);
    clear.hidden = !search;
    if (!frozen) connect();
    else fetch("./" + location.search).then((r) => r.text()).then((html) => patch(byId("content"),
      new DOMParser().parseFromString(html, "text/html").querySelector("main")));
  };
  byId("apply").hidden = true;
  filter.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(apply, 200); });
  filter.addEventListener("submit", (e) => { e.preventDefault(); clearTimeout(typing); apply(); });
  const clearAll = (e) => {
    e.preventDefault();
    for (const field of filter.querySelectorAll("input, select")) field.value = "";
    apply();
  };
  clear.addEventListener("click", clearAll);
  document.addEventListener("click", (e) => { if (e.target.matches("#events .empty a")) clearAll(e); });

  // Pause and resume without leaving the page.
  document.addEventListener("submit", async (e) => {
    const form = e.target;
    if (!form.matches("[data-control]")) return;
    e.preventDefault();
    problem.hidden = true;
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (!answer.ok) throw new Error(await answer.text());
      if (!frozen) connect();
    } catch (err) {
      problem.textContent = "Not done: " + (err.message || "no answer").trim();
      problem.hidden = false;
    }
  });

  // Countdowns run on between two updates, as long as updates come.
  setInterval(() => {
    const gone = performance.now() - seen;
    if (frozen || gone > 3000) return;
    for (const el of document.querySelectorAll(".left")) {
      const ms = Math.max(0, Number(el.dataset.ms) - gone);
      if (ms < 60000) el.textContent = (ms / 1000).toFixed(1) + " s";
    }
  }, 100);

  // The read-out of the charts follows the pointer, or the arrow keys.
  const readOut = (svg, x) => {
    const lines = [...svg.querySelectorAll("polyline")];
    const figure = svg.closest("figure"), out = figure.querySelector("output"), cursor = svg.querySelector(".cursor");
    const values = lines.map((l) => l.dataset.values.split(" ").filter(Boolean));
    const i = x - (300 - values[0].length);
    if (x === null || i < 0 || i >= values[0].length) {
      out.textContent = "";
      cursor.setAttribute("visibility", "hidden");
      return;
    }
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const at = new Date((Number(svg.dataset.end) - 299 + x) * 1000);
    out.textContent = at.toLocaleTimeString([], { hour12: false }) + " – " +
      lines.map((l, n) => l.dataset.name + " " + values[n][i]).join(", ");
  };
  const plotOf = (e) => (e.target.closest ? e.target.closest(".plot svg") : null);
  document.addEventListener("pointermove", (e) => {
    const svg = plotOf(e);
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = Math.round(299 * (e.clientX - box.left) / box.width);
    readOut(svg, Math.min(299, Math.max(0, x)));
  });
  document.addEventListener("pointerout", (e) => { const svg = plotOf(e); if (svg && !svg.contains(e.relatedTarget)) readOut(svg, null); });
  document.addEventListener("focusout", (e) => { const svg = plotOf(e); if (svg) readOut(svg, null); });
  document.addEventListener("keydown", (e) => {
    const svg = plotOf(e);
    if (!svg || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(e.key)) return;
    e.preventDefault();
    const cursor = svg.querySelector(".cursor");
    const from = cursor.getAttribute("visibility") === "hidden" ? 300 : Number(cursor.getAttribute("x1"));
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 300 - svg.querySelector("polyline").dataset.values.split(" ").length, End: 299 }[e.key];
    readOut(svg, Math.min(299, Math.max(0, to)));
  });

  connect();
})();
