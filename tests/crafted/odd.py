"""Values that no request can have, or hardly any, by column; tried in journals and in records.npz."""

from __future__ import annotations

import numpy as np

BIG = 2**62
ODD = {
    "request_id": (-1, BIG, 5),
    "session": (-BIG, BIG),
    "worker": (-5, 30_000),
    "slo_class": (255,),
    "scheduled_s": (np.nan, np.inf, -np.inf, 1e300, -5.0, 1e8),
    "sent_s": (np.inf, -1e18, -3.0, 1e8),
    "first_token_s": (np.inf, -7.0, 1e300),
    "last_token_s": (-np.inf, -7.0, 1e9),
    "done_s": (np.inf, -9.0, 9e8),
    "client_queue_s": (np.nan, np.inf, -4.0),
    "queue_s": (np.inf, 1e300, -1e300),
    "prompt_tokens": (-1, 2**31 - 1),
    "max_tokens": (-7, 2**31 - 1),
    "served_prompt_tokens": (-9, 2**31 - 1),
    "output_tokens": (-3, 2**31 - 1, 0),
    "hidden_tokens": (-3, 2**31 - 1),
    "token_events": (-3, 2**31 - 1, 1),
    "outcome": (10, 255),
    "phase": (9, 255),
    "http_status": (65_535,),
    "error_id": (-9, 10**6),
    "flags": (2**32 - 1,),
    "stamp_source": (7, 255),
    "reads": (-1, 2**31 - 1),
    "coalesced_reads": (2**31 - 1,),
    "loop_lag_max_us": (np.inf, -5.0, 3e38),
}
