"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.addEventListener("click", (event) => {
    const title = event.target.closest("th");
    if (!title) return;
    const sorted = title.getAttribute("aria-sort");
    const text = table.tBodies[0].rows[0]?.cells[title.cellIndex]?.dataset.v === undefined;
    const down = sorted ? sorted === "ascending" : !text;
    for (const other of title.parentNode.cells) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const cell = row.cells[title.cellIndex]; return text ? cell.textContent : Number(cell.dataset.v); };
    const compare = text ? (a, b) => key(a).localeCompare(key(b), "en", { numeric: true }) : (a, b) => key(a) - key(b);
    const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? -1 : 1) * compare(a, b));
    table.tBodies[0].append(...rows);
  });
}
for (const input of document.querySelectorAll("input[data-for]")) {
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of document.getElementById(input.dataset.for).tBodies[0].rows)
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
}
