// Paths of the TCP in three dimensions on a canvas: drag turns the view, a click picks the nearest path.
(() => {
  const data = JSON.parse(document.getElementById("paths-data").textContent);
  const canvas = document.getElementById("paths"), label = document.getElementById("paths-label");
  const show = { succeeded: document.getElementById("show-succeeded"), failed: document.getElementById("show-failed") };
  const others = [...document.querySelectorAll(".show-other")]; // a box for each other controller
  const FAR = 100; // metres: what is farther away is a slot without an obstacle
  const hint = label.textContent;
  let azimuth = -0.9, elevation = 0.45, picked = null;

  // Fit everything: the box that goals lie in and the base.
  const [low, high] = data.workspace;
  const middle = low.map((x, i) => (Math.min(x, 0) + high[i]) / 2);
  const reach = Math.hypot(...low.map((x, i) => (high[i] - Math.min(x, 0)) / 2));

  let width, height, scale, context;
  function project([x, y, z]) {
    const [dx, dy, dz] = [x - middle[0], y - middle[1], z - middle[2]];
    const [ca, sa, ce, se] = [Math.cos(azimuth), Math.sin(azimuth), Math.cos(elevation), Math.sin(elevation)];
    const right = -sa * dx + ca * dy, depth = ca * dx + sa * dy;
    return [width / 2 + scale * right, height / 2 - scale * (ce * dz - se * depth)];
  }
  function line(points, colour, weight, alpha) {
    context.beginPath();
    points.forEach((point, i) => context[i ? "lineTo" : "moveTo"](...project(point)));
    Object.assign(context, { strokeStyle: colour, lineWidth: weight, globalAlpha: alpha });
    context.stroke();
  }
  function dot(point, radius, colour, alpha, filled) {
    context.beginPath();
    context.arc(...project(point), radius, 0, 2 * Math.PI);
    Object.assign(context, { fillStyle: colour, strokeStyle: colour, lineWidth: 1.5, globalAlpha: alpha });
    context[filled ? "fill" : "stroke"]();
  }
  function floor(ink) {
    for (let i = -4; i <= 4; i++) {
      line([[i / 4, -1, 0], [i / 4, 1, 0]], ink, 1, 0.12);
      line([[-1, i / 4, 0], [1, i / 4, 0]], ink, 1, 0.12);
    }
    context.fillStyle = ink;
    [["x", [0.2, 0, 0]], ["y", [0, 0.2, 0]], ["z", [0, 0, 0.2]]].forEach(([name, end]) => {
      line([[0, 0, 0], end], ink, 2, 0.8);
      context.fillText(name, ...project(end.map((x) => 1.15 * x)));
    });
  }
  const corner = (k) => [k & 1 ? 1 : -1, k & 2 ? 1 : -1, k & 4 ? 1 : -1];
  function box([x, y, z, a, b, c, qw, qx, qy, qz], ink) { // centre, half sides, quaternion
    const turned = corner0 => {
      const [u, v, w] = [corner0[0] * a, corner0[1] * b, corner0[2] * c];
      const t = [2 * (qy * w - qz * v), 2 * (qz * u - qx * w), 2 * (qx * v - qy * u)];
      return [x + u + qw * t[0] + qy * t[2] - qz * t[1], y + v + qw * t[1] + qz * t[0] - qx * t[2],
        z + w + qw * t[2] + qx * t[1] - qy * t[0]];
    };
    for (let k = 0; k < 8; k++)
      for (const bit of [1, 2, 4]) if (!(k & bit)) line([turned(corner(k)), turned(corner(k | bit))], ink, 1.2, 0.7);
  }
  function wall([nx, ny, nz, offset], ink) { // the plane n . p = offset: a square about the point nearest the middle
    const n = [nx, ny, nz], out = offset - n.reduce((sum, x, i) => sum + x * middle[i], 0);
    const centre = middle.map((x, i) => x + out * n[i]);
    const helper = Math.abs(nz) < 0.9 ? [0, 0, 1] : [1, 0, 0];
    const cross = (p, q) => [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]];
    let side = cross(n, helper);
    side = side.map((x) => x / Math.hypot(...side));
    const up = cross(n, side), at = (s, t) => centre.map((x, i) => x + 0.6 * (s * side[i] + t * up[i]));
    for (let i = -3; i <= 3; i++) {
      line([at(i / 3, -1), at(i / 3, 1)], ink, 1, 0.5);
      line([at(-1, i / 3), at(1, i / 3)], ink, 1, 0.5);
    }
  }
  function obstacles(path, ink) {
    for (const [x, y, z, radius] of path.spheres || []) {
      if (Math.abs(x) < FAR) dot([x, y, z], radius * scale, ink, 0.7, false);
    }
    for (const one of path.boxes || []) if (Math.abs(one[0]) < FAR) box(one, ink);
    for (const one of path.walls || []) if (Math.abs(one[3]) < FAR) wall(one, ink);
  }
  const failed = new Set(data.paths.filter((path) => path.failed).map((path) => path.episode));
  const visible = () =>
    data.paths.filter((path) => {
      const kind = failed.has(path.episode) ? show.failed : show.succeeded;
      return path.by ? others[path.by - 1].checked && kind.checked : kind.checked;
    });
  function draw() {
    const ratio = window.devicePixelRatio || 1;
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    scale = (1.2 * Math.min(width, height)) / (2 * reach);
    context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(canvas), ink = style.color;
    context.font = "12px " + style.fontFamily;
    floor(ink);
    for (const path of visible()) {
      const colour = path.by ? data.colours[path.by] : style.getPropertyValue(path.failed ? "--bad" : "--good");
      const alpha = picked === null ? 0.8 : path.episode === picked.episode ? 1 : 0.12; // of all controllers
      line(path.tcp, colour, path === picked ? 2.5 : 1.4, alpha);
      if (path.object) line(path.object, ink, 1.4, 0.6 * alpha);
      if (path.goal.length > 1) line(path.goal, ink, 1, 0.6 * alpha);
      if (path.goal[0].length) dot(path.goal[path.goal.length - 1], 4, colour, alpha, false);
      dot(path.tcp[path.tcp.length - 1], 2, colour, alpha, true);
    }
    if (picked !== null) obstacles(picked, ink);
  }
  function pick(event) {
    const [x, y] = [event.offsetX, event.offsetY];
    const distance = (path) => Math.min(...path.tcp.map(project).map(([u, v]) => Math.hypot(u - x, v - y)));
    const found = visible().map((path) => [distance(path), path]).sort((a, b) => a[0] - b[0])[0];
    picked = found && found[0] < 15 ? found[1] : null;
    const by = picked?.by ? others[picked.by - 1].closest("label").textContent.trim() + ", " : "";
    label.textContent = picked === null ? hint : by + picked.label;
    draw();
  }
  let held = null, moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    [held, moved] = [[event.clientX, event.clientY], 0];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) return;
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    moved += Math.hypot(dx, dy);
    azimuth -= 0.008 * dx;
    elevation = Math.max(-0.2, Math.min(Math.PI / 2, elevation + 0.008 * dy));
    held = [event.clientX, event.clientY];
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    held = null;
    if (moved < 5) pick(event);
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
  [...Object.values(show), ...others].forEach((box) => box.addEventListener("change", () => { picked = null; draw(); }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
})();
