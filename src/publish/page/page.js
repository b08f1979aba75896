"use strict";
addEventListener("DOMContentLoaded", () => {
  // The question whose answer stands here was sent no earlier than this.
  let sent = { steady: 0, wall: performance.timeOrigin };
  let asking = false;
  let again = false;
  const clocks = () => ({ steady: performance.now(), wall: Date.now() });
  // The larger advance of two clocks: one of them may stop while the machine sleeps.
  const since = (then) => Math.max(performance.now() - then.steady, Date.now() - then.wall);
  const every = (selector, act) => document.querySelectorAll(selector).forEach(act);

  const spoken = (ms) => {
    const s = Math.floor(ms / 1000);
    if (s < 10) return s + "." + Math.floor((ms % 1000) / 100) + "s";
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60) + "s";
    if (s < 86400) return Math.floor(s / 3600) + "h" + (Math.floor(s / 60) % 60) + "m";
    return Math.floor(s / 86400) + "d" + (Math.floor(s / 3600) % 24) + "h";
  };

  // Dates in the zone of the reader, with its offset from UTC.
  const two = (number) => String(number).padStart(2, "0");
  const zoned = (page) => page.querySelectorAll("time").forEach((it) => {
    const at = new Date(it.dateTime);
    if (isNaN(at)) return;
    const ahead = -at.getTimezoneOffset();
    const offset = Math.abs(ahead);
    const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
    const zone = two(Math.floor(offset / 60)) + ":" + two(offset % 60);
    const month = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ")[at.getMonth()];
    it.textContent = at.getDate() + " " + month + " " + clock + " " + (ahead < 0 ? "−" : "+") + zone;
  });

  // Changes only what differs, so that a selection stays and only news is read aloud.
  const become = (mine, fresh) => {
    if (mine.nodeName !== fresh.nodeName) return mine.replaceWith(fresh);
    if (mine.nodeType === 3) {
      if (mine.data !== fresh.data) mine.data = fresh.data;
      return;
    }
    for (const it of [...mine.attributes]) {
      if (!fresh.hasAttribute(it.name)) mine.removeAttribute(it.name);
    }
    for (const it of fresh.attributes) {
      if (mine.getAttribute(it.name) !== it.value) mine.setAttribute(it.name, it.value);
    }
    const had = [...mine.childNodes];
    const has = [...fresh.childNodes];
    has.forEach((it, at) => (had[at] ? become(had[at], it) : mine.append(it)));
    had.slice(has.length).forEach((it) => it.remove());
  };

  const tick = () => {
    const gone = since(sent);
    every("[data-ago]", (it) => (it.textContent = spoken(+it.dataset.ago + gone)));
    every("[data-left]", (it) => {
      const left = Math.max(0, it.dataset.left - gone);
      if (it.nodeName === "PROGRESS") it.value = left;
      else it.textContent = left ? spoken(left) : "expired";
    });
    const body = document.body;
    const holds = +body.dataset.holds;
    if (gone >= holds && body.dataset.role !== "over") {
      // Nothing here may be claimed any longer.
      body.dataset.role = body.dataset.tone = "over";
      document.title = "Refreshing";
      const icon = document.querySelector("link");
      icon.href = icon.dataset.unknown;
      every("[data-over]", (it) => (it.textContent = it.dataset.over));
    }
    if (gone > Math.min(Math.max(holds / 2, 1000), holds) && !document.hidden) ask();
  };

  let last = 0;
  const ask = (now = false) => {
    // What is being answered may be older than the news.
    if (asking) again ||= now;
    if (asking || (!now && performance.now() - last < 1000)) return;
    asking = true;
    again = false;
    last = performance.now();
    const question = new XMLHttpRequest();
    const then = clocks();
    question.open("GET", location.pathname);
    question.setRequestHeader("Accept", "text/html");
    question.responseType = "document";
    question.timeout = 5000;
    question.onloadend = () => {
      asking = false;
      if (again) ask(true);
      const fresh = question.status === 200 && question.response;
      if (!fresh || !fresh.body.dataset.tenure) return every(".lost", (it) => (it.hidden = false));
      sent = then;
      zoned(fresh);
      become(document.body, fresh.body);
      document.title = fresh.title;
      become(document.querySelector("link"), fresh.querySelector("link"));
      tick();
    };
    question.send();
  };

  // An event says when to ask, not how long to believe.
  const listen = () => {
    const events = new EventSource("watch");
    events.onmessage = () => ask(true);
    events.onerror = () => {
      ask(true);
      if (events.readyState === EventSource.CLOSED) poll();
    };
  };

  // There are as many streams as there may be: one long poll, then another attempt.
  const poll = () => {
    const question = new XMLHttpRequest();
    question.open("GET", "watch?wait=30s&index=" + document.body.dataset.tenure);
    question.timeout = 40000;
    question.onloadend = () => {
      ask(true);
      setTimeout(listen, question.status === 200 ? 0 : 5000);
    };
    question.send();
  };

  document.addEventListener("visibilitychange", tick);
  setInterval(tick, 100);
  zoned(document);
  tick();
  listen();
});
