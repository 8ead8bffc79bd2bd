(() => {
  const root = document.documentElement;
  const options = { renderer: "svg", actions: false, tooltip: { disableDefaultStyle: true } };
  const charts = [...document.querySelectorAll(".chart")];
  const waiting = new Set(charts);

  const draw = async (chart) => {
    waiting.delete(chart);
    // Inside the chart's own element, because Vega gives the one it draws into another role and name.
    const still = [...chart.childNodes];
    const live = document.createElement("div");
    chart.replaceChildren(live);
    try {
      await vegaEmbed(live, JSON.parse(document.getElementById(chart.dataset.spec).textContent), options);
      chart.dataset.drawn = "yes";
    } catch (error) {
      chart.replaceChildren(...still);
      chart.dataset.drawn = "no";
      console.error(chart.id, error);
    }
  };

  const theme = document.querySelector(".theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // What is near the window is drawn as soon as it is there; the rest one by one while nothing else is to do.
  const near = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      if (waiting.has(target)) draw(target);
    }
  }, { rootMargin: "300px 0px" });
  const idle = window.requestIdleCallback || ((run) => setTimeout(run, 50));
  const rest = async () => {
    const [next] = waiting;
    if (!next) {
      root.dataset.charts = charts.every((chart) => chart.dataset.drawn) ? "drawn" : "drawing";
      if (root.dataset.charts === "drawn") return;
    } else {
      await draw(next);
    }
    idle(rest, { timeout: 2000 });
  };
  for (const chart of charts) near.observe(chart);
  requestAnimationFrame(() => setTimeout(() => idle(rest, { timeout: 2000 }), 100));
})();
