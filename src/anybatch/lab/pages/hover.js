// Shows the values of all lines at the pointer. Without it the page loses nothing else.
for (const frame of document.querySelectorAll(".frame")) {
  const plot = frame.querySelector(".plot");
  const data = JSON.parse(frame.querySelector("script").textContent);
  const [low, high, isLog] = data.x;
  const scaled = isLog ? Math.log : (value) => value;
  const placeOf = (x) => (scaled(x) - scaled(low)) / (scaled(high) - scaled(low));
  const written = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const cursor = Object.assign(document.createElement("div"), { className: "cursor", hidden: true });
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  plot.append(cursor, tip);

  const nearest = (xs, place) => {
    let best = 0;
    xs.forEach((x, number) => {
      if (Math.abs(placeOf(x) - place) < Math.abs(placeOf(xs[best]) - place)) best = number;
    });
    return best;
  };
  const line = (label, value, color) => {
    const row = document.createElement("div");
    const name = Object.assign(document.createElement("span"), { textContent: label });
    if (color) {
      const swatch = Object.assign(document.createElement("i"), { className: "swatch" });
      swatch.style.color = `var(--${color})`;
      name.prepend(swatch, " ");
    }
    row.append(name, Object.assign(document.createElement("b"), { textContent: value }));
    return row;
  };

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const pointed = (event.clientX - box.left) / box.width;
    const points = data.series
      .filter(([, , xs]) => xs.length)
      .map(([label, color, xs, ys]) => ({ label, color, xs, ys, at: nearest(xs, pointed) }));
    if (!points.length) return;
    const x = points[0].xs[points[0].at];
    const place = placeOf(x);
    cursor.style.left = `${100 * place}%`;
    tip.style.left = place < 0.5 ? `calc(${100 * place}% + .5rem)` : "auto";
    tip.style.right = place < 0.5 ? "auto" : `calc(${100 - 100 * place}% + .5rem)`;
    const values = points.map((point) => line(point.label, written(point.ys[point.at]), point.color));
    tip.replaceChildren(line(data.label, data.names.length ? data.names[nearest(data.places, place)] : written(x)), ...values);
    cursor.hidden = tip.hidden = false;
  });
  plot.addEventListener("pointerleave", () => {
    cursor.hidden = tip.hidden = true;
  });
}
