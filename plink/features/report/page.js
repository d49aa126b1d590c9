"use strict";
// Shows what is known of the pair or host under the pointer, or chosen by keyboard. Names are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const n = data.names.length;

  // Decoded when first needed, so that the page stands before.
  const later = (text) => {
    let found = null;
    return () => { found ??= floats(text); return found; };
  };
  const floats = (text) => {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k += 1) bytes[k] = raw.charCodeAt(k);
    return new Float32Array(bytes.buffer);
  };
  const matrix = (text) => (text === null || text === undefined ? null : later(text));
  const measured = matrix(data.measured);
  const fitted = matrix(data.fitted);
  const gbps = matrix(data.gbps);
  const blocks = {};
  for (const [name, rows] of Object.entries(data.blocks ?? {})) {
    blocks[name] = { ...rows };
    for (const key of ["median", "low", "high", "known", "ratio"]) blocks[name][key] = matrix(rows[key]);
  }
  const place = new Array(n);
  data.orders.order.forEach((host, row) => { place[host] = row; });

  const fittedOf = (i, j) => {
    if (fitted === null || i === j) return NaN;
    const [a, b] = i < j ? [i, j] : [j, i];
    return fitted()[a * n - (a * (a + 1)) / 2 + b - a - 1];
  };
  const us = (value) => {
    if (Number.isNaN(value)) return "not measured";
    return value < 1000 ? `${value.toFixed(1)} us` : `${(value / 1000).toPrecision(3)} ms`;
  };

  const aboutPair = (i, j) => {
    const [a, b] = [data.names[i], data.names[j]];
    if (i === j) return [a, "the host itself"];
    const there = measured()[i * n + j];
    const lines = [`${a} → ${b}`, `measured ${us(there)}; back ${us(measured()[j * n + i])}`];
    const fit = fittedOf(i, j);
    if (!Number.isNaN(fit)) {
      const left = Number.isNaN(there) ? "" : `; measured - fitted ${(there - fit).toFixed(1)} us (ratio ${(there / fit).toFixed(2)})`;
      lines.push(`fitted ${us(fit)}${left}`);
    }
    const rate = gbps === null ? NaN : gbps()[i * n + j];
    if (!Number.isNaN(rate)) lines.push(`sends ${rate < 1 ? `${(rate * 1000).toPrecision(3)} Mbit/s` : `${rate.toPrecision(3)} Gbit/s`}`);
    const groups = data.groups[i] === data.groups[j] ? `both in group ${data.groups[i]}` : `groups ${data.groups[i]} and ${data.groups[j]}`;
    lines.push(data.ranked ? `${groups}; places ${place[i]} and ${place[j]} in the order` : groups);
    return lines;
  };
  // The slower of both directions, the one that was measured where there is only one.
  const slower = (i, j) => {
    const [there, back] = [measured()[i * n + j], measured()[j * n + i]];
    return Number.isNaN(there) ? back : Number.isNaN(back) ? there : Math.max(there, back);
  };
  const nearestTo = (host) => {
    if (data.blocks !== null) return data.nearest[host];
    let nearest = -1;
    for (let other = 0; other < n; other += 1) {
      if (other !== host && !Number.isNaN(slower(host, other)) && (nearest < 0 || slower(host, other) < slower(host, nearest))) {
        nearest = other;
      }
    }
    return nearest < 0 ? null : [nearest, slower(host, nearest)];
  };
  const aboutHost = (host) => {
    const nearest = nearestTo(host);
    const lines = [data.names[host], `group ${data.groups[host]}${data.ranked ? `, place ${place[host]} in the order` : ""}`];
    if (nearest !== null) lines.push(`nearest: ${data.names[nearest[0]]}, ${us(nearest[1])}`);
    return lines;
  };

  const block = (rows, k) => {
    const [size, first, last] = rows.hosts[k];
    return size === 1 ? data.names[first] : `${size} hosts, ${data.names[first]} to ${data.names[last]}`;
  };
  const groupsOf = (rows, k) => {
    const all = rows.groups[k];
    return all.length === 1 ? `of group ${all[0]}` : `of ${all.length} groups`;
  };
  const aboutBlocks = (rows, i, j) => {
    const at = i * rows.hosts.length + j;
    const [a, b] = [rows.hosts[i][0], rows.hosts[j][0]];
    const pairs = i === j ? a * (a - 1) : a * b;
    const known = rows.known()[at];
    const lines = [i === j ? `among ${block(rows, i)}` : `${block(rows, i)} → ${block(rows, j)}`];
    if (pairs === 0) return [...lines, "the host itself"];
    lines.push(known === 0 ? "not measured" : `median ${us(rows.median()[at])} (${us(rows.low()[at])} to ${us(rows.high()[at])})`);
    lines.push(known === pairs ? `${pairs} round trips` : `${known} of ${pairs} round trips measured`);
    const ratio = rows.ratio === null ? NaN : rows.ratio()[at];
    if (!Number.isNaN(ratio)) lines.push(`measured / fitted: ${ratio.toFixed(2)} (median)`);
    return [...lines, i === j ? groupsOf(rows, i) : `${groupsOf(rows, i)} and ${groupsOf(rows, j)}`];
  };

  const hover = document.getElementById("hover");
  const said = document.getElementById("said");
  const show = (lines, x, y) => {
    hover.replaceChildren(...lines.map((line) => {
      const row = document.createElement("p");
      row.textContent = line;
      return row;
    }));
    hover.hidden = false;
    const box = hover.getBoundingClientRect();
    const left = x + 18 + box.width > window.innerWidth ? x - 18 - box.width : x + 18;
    const top = Math.min(y + 18, window.innerHeight - box.height - 8);
    hover.style.left = `${Math.max(8, left)}px`;
    hover.style.top = `${Math.max(8, top)}px`;
  };

  // What a figure shows at a place, and how one steps through it: `at(x, y)` and `step(key)` give what is chosen or null.
  const attach = (figure, kind) => {
    const frame = figure.querySelector('[id^="frame-"]');
    const sign = document.createElement("div");
    sign.className = kind.sign;
    sign.hidden = true;
    figure.append(sign);
    let chosen = null;
    const hide = () => { sign.hidden = true; hover.hidden = true; };
    const point = (next, pointer) => {
      chosen = next;
      const box = frame.getBoundingClientRect();
      const home = figure.getBoundingClientRect();
      const place = kind.place(next, box);
      sign.style.left = `${place.x - home.left}px`;
      sign.style.top = `${place.y - home.top}px`;
      if (kind.sign === "cell") {
        sign.style.width = `${place.width}px`;
        sign.style.height = `${place.height}px`;
      }
      sign.hidden = false;
      const lines = kind.about(next);
      show(lines, pointer ? pointer.clientX : place.x, pointer ? pointer.clientY : place.y);
      if (!pointer) said.textContent = lines.join(", ");
    };
    figure.addEventListener("pointermove", (event) => {
      const found = kind.at(event.clientX, event.clientY, frame.getBoundingClientRect());
      if (found === null) hide(); else point(found, event);
    });
    figure.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { hide(); return; }
      const next = kind.step(chosen, event.key);
      if (next !== null) { event.preventDefault(); point(next, null); }
    });
  };

  const arrows = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  for (const figure of document.querySelectorAll("figure[data-rows]")) {
    const order = data.orders[figure.dataset.rows];
    const rows = blocks[figure.dataset.rows] ?? null;
    const size = rows === null ? n : rows.hosts.length;
    const within = (k) => Math.min(size - 1, Math.max(0, k));
    attach(figure, {
      sign: "cell",
      at: (x, y, box) => {
        const column = Math.floor(((x - box.left) / box.width) * size);
        const row = Math.floor(((y - box.top) / box.height) * size);
        return row < 0 || column < 0 || row >= size || column >= size ? null : [row, column];
      },
      step: (from, key) => {
        if (!(key in arrows)) return null;
        return from === null ? [0, 1] : [within(from[0] + arrows[key][0]), within(from[1] + arrows[key][1])];
      },
      place: ([row, column], box) => ({
        x: box.left + (column / size) * box.width, y: box.top + (row / size) * box.height,
        width: box.width / size, height: box.height / size,
      }),
      about: ([row, column]) => (rows === null ? aboutPair(order[row], order[column]) : aboutBlocks(rows, row, column)),
    });
  }
  for (const figure of document.querySelectorAll("figure[data-map]")) {
    const first = new Map(data.shared ? blocks.order.hosts.map((hosts, k) => [hosts[1], k]) : []);
    const shown = data.orders.order.filter((host) => data.points[host] !== null && (!data.shared || first.has(host)));
    const place = (host, box) => ({
      x: box.left + data.points[host][0] * box.width, y: box.bottom - data.points[host][1] * box.height,
    });
    attach(figure, {
      sign: "spot",
      at: (x, y, box) => {
        let [best, least] = [null, 20];
        for (const host of shown) {
          const at = place(host, box);
          const away = Math.hypot(at.x - x, at.y - y);
          if (away < least) [best, least] = [host, away];
        }
        return best;
      },
      step: (from, key) => {
        if (!(key in arrows)) return null;
        const forward = key === "ArrowRight" || key === "ArrowDown" ? 1 : shown.length - 1;
        return from === null ? shown[0] : shown[(shown.indexOf(from) + forward) % shown.length];
      },
      place,
      about: (host) => (data.shared ? [block(blocks.order, first.get(host)), groupsOf(blocks.order, first.get(host))] : aboutHost(host)),
    });
  }

  const pair = document.getElementById("pair");
  const [from, to] = pair.querySelectorAll("select");
  const rows = blocks.order ?? null;
  const choices = rows === null ? data.names : rows.hosts.map((_, k) => block(rows, k));
  for (const list of [from, to]) choices.forEach((text, k) => list.add(new Option(text, String(k))));
  to.selectedIndex = 1;
  const answer = () => {
    const [i, j] = [Number(from.value), Number(to.value)];
    pair.querySelector("output").textContent = (rows === null ? aboutPair(i, j) : aboutBlocks(rows, i, j)).join("; ");
  };
  pair.addEventListener("input", answer);
  pair.hidden = false;
  requestAnimationFrame(() => setTimeout(answer));
})();
