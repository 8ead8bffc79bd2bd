(() => {
  const root = document.documentElement;
  const options = { renderer: "svg", actions: false, tooltip: { disableDefaultStyle: true } };

  const draw = async (chart) => {
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

  (async () => {
    for (const chart of document.querySelectorAll(".chart")) await draw(chart);
    root.dataset.charts = "drawn";
  })();
})();
