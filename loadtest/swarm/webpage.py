"""A tab on Locust's web page: TTFT, TPOT, attainment and client lag so far, beside what Locust shows itself.

The page starts loads, so it obeys no form of another site: a browser names the site that a request comes from.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from locust.env import Environment

from loadtest.replay.tally import Seen, quantile_s
from loadtest.swarm.coordinator import coordinator_of
from loadtest.swarm.token import is_loopback

KEY = "goodput"
NOT_FROM_A_PAGE = frozenset(("out", "token_file"))
COLUMNS = {"metric": "Metric", "n": "# requests", "p50": "50%ile", "p90": "90%ile", "p99": "99%ile"}


def extend_page(environment: Environment) -> None:
    """Add the tab where there is a web page; nothing with --headless."""
    page: Any = environment.web_ui
    if page is None:
        return
    page.app.before_request(refuse_strangers)
    structure = [{"key": key, "title": title} for key, title in COLUMNS.items()]
    page.template_args |= {
        "extended_tabs": [{"title": "Goodput", "key": KEY}],
        "extended_tables": [{"key": KEY, "structure": structure}],
    }

    def add_rows(response: Any) -> Any:
        from flask import request

        if request.path == "/stats/requests" and response.is_json:
            document = response.get_json()
            document["extended_stats"] = [{"key": KEY, "data": rows(coordinator_of(environment).progress().seen)}]
            response.set_data(msgspec.json.encode(document))
        return response

    page.app.after_request(add_rows)


def refuse_strangers() -> tuple[str, int] | None:
    """403 for what another site's page sends, for a name that was made to point here (DNS rebinding), and for paths."""
    from flask import request

    if not NOT_FROM_A_PAGE.isdisjoint(request.form):
        return "goodput: paths are given on the command line only\n", 403

    host = urlsplit(f"//{request.host}").hostname or ""
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.host
    foreign |= request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and request.method != "GET"
    rebound = is_loopback(request.remote_addr or "") and not is_loopback(host)
    return ("goodput: this page takes orders only from itself\n", 403) if foreign or rebound else None


def rows(seen: Seen) -> list[dict[str, str]]:
    """The tab's table: a row per latency in milliseconds, and the share that met the targets where there are any."""
    named = {"TTFT (ms)": seen.ttft, "TPOT (ms)": seen.tpot, "client lag (ms)": seen.lag}
    made = [{"metric": name, "n": str(sum(bins)), **_quantiles(bins)} for name, bins in named.items()]
    if seen.judged:
        share = f"{seen.good / seen.judged:.1%}"
        made.append({"metric": "within targets", "n": str(seen.judged), "p50": share, "p90": "", "p99": ""})
    return made


def _quantiles(bins: list[int]) -> dict[str, str]:
    found = {f"p{share * 100:.0f}": quantile_s(bins, share) for share in (0.5, 0.9, 0.99)}
    return {name: "" if value is None else f"{value * 1e3:.3g}" for name, value in found.items()}
