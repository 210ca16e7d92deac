// What stands under the pointer: one line below the chart, by mouse, finger or arrow keys. The page works without it.
(() => {
  const data = JSON.parse(document.getElementById("turns").textContent);
  const chart = document.getElementById("chart"), told = document.getElementById("told");
  if (!chart || !data.length) return;
  const svg = chart.querySelector("svg");
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor"); cursor.setAttribute("y1", 0); cursor.setAttribute("y2", 300);
  let at = data.length - 1;
  const show = (n) => {
    at = Math.max(0, Math.min(data.length - 1, n));
    const x = data.length > 1 ? at * 1000 / (data.length - 1) : 0;
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    svg.appendChild(cursor);
    told.textContent = data[at];
  };
  const from = (event) => {
    const box = svg.getBoundingClientRect();
    show(Math.round((event.clientX - box.left) / box.width * (data.length - 1)));
  };
  chart.addEventListener("pointermove", from);
  chart.addEventListener("pointerdown", from);
  chart.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") show(at - 1);
    if (event.key === "ArrowRight") show(at + 1);
  });
})();
