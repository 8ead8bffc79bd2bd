"""A performance model of a live server: a star of measured points, repeats, and mixed points to check the fit on.

    probe    does it stream a request to its end?
    star     prompts of 32 to 8,192 tokens alone; batches of 2 to 64 prompts of 512: each a few times, in turn
    mixed    a prompt that arrives among 8 decodes: not fitted, says what the model is worth where nothing was measured

Every episode is a schedule of its own, replayed like any other, and begins when the one before has ended. A prompt
alone gives a prefill point (its TTFT, with whatever HTTP and scheduling cost) and a decode point; a batch gives a
decode point from the time in which all of it decodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.backends.fitting import DecodePoint, PrefillPoint, fit_decode, fit_prefill
from loadtest.backends.perfmodel import PerfModel, Profile, model_of
from loadtest.backends.shape import Shape
from loadtest.calibrate import Fitted, Group
from loadtest.errors import TargetError
from loadtest.replay.sender import SenderOptions
from loadtest.target import LoadSettings, Target
from loadtest.workload import fresh_salt
from metrics import rundir
from metrics.records import Outcome, RecordTable
from workloads.schedule import Schedule, unrelated

Measure = Callable[[Schedule], RecordTable]

FEWEST_TOKENS = 3  # of a batch, while all of it decodes
FEWEST_EVENTS_PER_TOKEN = 0.9


class Design(NamedTuple):
    """What to measure; a point of the star has `output` tokens."""

    prompts: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    batches: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    batch_prompt: int = 512
    output: int = 64
    repeats: int = 3
    mixed: tuple[int, ...] = (256, 512, 1024, 2048)
    mixed_batch: int = 8

    def within(self, max_model_len: int | None, max_num_seqs: int | None = None) -> Design:
        """Without what the model's context or the server's batch cannot hold."""
        most, together = (max_model_len or 1 << 30) - self.output, max_num_seqs or 1 << 30
        return self._replace(
            prompts=tuple(n for n in self.prompts if n <= most),
            mixed=tuple(n for n in self.mixed if n <= most),
            batches=tuple(batch for batch in self.batches if batch <= together),
            mixed_batch=min(self.mixed_batch, max(1, together - 1)),
        )


QUICK = Design(
    prompts=(32, 128, 512, 1024, 2048, 4096, 8192),
    batches=(2, 8, 32),
    output=16,
    repeats=1,
    mixed=(1024,),
    mixed_batch=4,
)


class Episode(NamedTuple):
    """Requests that come together, nothing before and nothing after; `late` is a prompt that arrives among them."""

    prompt: int
    batch: int
    output: int
    late: int = 0
    late_s: float = 0.0  # after the others


@contextmanager
def measure_with(target: Callable[[LoadSettings], Target]) -> Iterator[tuple[Measure, int | None]]:
    """How a schedule is measured at a target, in folders that are gone afterwards; and the target's context."""
    with TemporaryDirectory(prefix="goodput-calibrate-") as folder, target(LoadSettings(SenderOptions())) as opened:
        number = count()

        def measure(schedule: Schedule) -> RecordTable:
            directory = rundir.create(Path(folder) / str(next(number)))
            schedule.save(directory / rundir.SCHEDULE)
            table = opened.measure(schedule, directory).table
            rundir.release(directory)
            return table

        yield measure, opened.facts.max_model_len


def calibrate_live(group: Group, measure: Measure, design: Design, per_context_token_ms: float | None) -> Fitted:
    """Fit one instance of a live server; TargetError when it does not answer as it must.

    Without `per_context_token_ms` (known hardware and model) the cost of context is fitted too.
    """
    _probe(measure, design)
    star = [Episode(n, 1, design.output) for n in design.prompts]
    star += [Episode(design.batch_prompt, batch, design.output) for batch in design.batches]
    seen = _play(measure, star * design.repeats)
    prefill = [
        PrefillPoint(e.prompt, e.prompt**2, median(run.ttft_ms for run in runs))
        for e, runs in seen.items()
        if e.batch == 1
    ]
    decode = [_decode_point(e.batch, runs) for e, runs in seen.items() if any(run.step_ms for run in runs)]
    if len(prefill) < 4 or len(decode) < 6:
        raise TargetError(
            f"{len(prefill)} prefill and {len(decode)} decode points are too few: the server was busy, "
            "too slow, or sent many tokens without text or several at once",
            hint="calibrate a server that nobody else uses, one instance of it, one event for each token",
            code="too_few_points",
        )
    profile = Profile(
        group.hardware,
        group.tp,
        fit_prefill(prefill, plain_sum=True),
        fit_decode(decode, per_context_token_ms, alone_apart=True),
    )
    return Fitted(
        group.model,
        profile,
        len(prefill),
        len(decode),
        {"prompt": max(p.tokens for p in prefill), "batch": max(p.batch for p in decode)},
        _mixed_error_percent(measure, design, profile),
    )


class Run(NamedTuple):
    """What one episode showed, in milliseconds; 0 for what it did not show."""

    ttft_ms: float
    step_ms: float  # mean iteration while all decode
    context: float  # sum of contexts, mean over these iterations
    worst_gap_ms: float


def _probe(measure: Measure, design: Design) -> None:
    """Two requests: the first may find the server cold, and none of the star should."""
    for _ in range(2):
        rows = measure(_schedule(Episode(design.batch_prompt, 1, 16))).rows
        if len(rows) != 1 or rows["outcome"][0] != Outcome.OK or rows["output_tokens"][0] < 2:
            raise TargetError(
                "the server does not stream a request of 16 tokens to its end",
                hint="try `goodput run --target URL --requests 1`",
                code="cannot_calibrate",
            )


def _play(measure: Measure, episodes: Sequence[Episode]) -> Mapping[Episode, list[Run]]:
    """Measure the episodes one after the other; what each showed, by episode."""
    found: dict[Episode, list[Run]] = defaultdict(list)
    for episode in episodes:
        table = measure(_schedule(episode))
        rows = table.rows
        # A token without text (half a character) leaves no event: with many of them steps would look too long.
        shown = rows["token_events"] >= np.maximum(1, FEWEST_EVENTS_PER_TOKEN * rows["output_tokens"])
        if (rows["outcome"] == Outcome.OK).all() and shown.all():
            found[episode].append(_run(table, episode))
    return found


def _schedule(episode: Episode) -> Schedule:
    """An episode's requests; their prompts are new, so that no prefix cache knows them."""
    batch, late = episode.batch, bool(episode.late)
    return unrelated(
        [0.0] * batch + [episode.late_s] * late,
        [episode.prompt] * batch + [episode.late] * late,
        [episode.output] * batch + [2] * late,
        salt=fresh_salt(),
        name="star design",
    )


def _run(table: RecordTable, episode: Episode) -> Run:
    rows = table.rows[: episode.batch]
    ttft_ms = float(np.median(rows["first_token_s"] - rows["sent_s"])) * 1e3
    tokens = [_token_times(table, row) for row in range(episode.batch)]
    begin, end = max(times[0] for times in tokens), min(times[-1] for times in tokens)
    inside = [np.flatnonzero((times > begin + 1e-9) & (times <= end + 1e-9)) for times in tokens]
    steps = min(len(indices) for indices in inside)
    late = table.rows[-1]  # the late prompt, if there is one: decodes that ended before its first token did not meet it
    met = [times for times in tokens if times[-1] >= late["first_token_s"]]
    worst_ms = (
        max((float(np.diff(times)[times[1:] > late["sent_s"]].max(initial=0.0)) for times in met), default=0.0) * 1e3
    )
    if steps < FEWEST_TOKENS:
        return Run(ttft_ms, 0.0, 0.0, worst_ms)
    context = sum(episode.prompt + float(indices.mean()) for indices in inside)
    return Run(ttft_ms, (end - begin) / steps * 1e3, context, worst_ms)


def _token_times(table: RecordTable, row: int) -> NDArray[np.float64]:
    events = table.events
    assert events is not None
    return np.asarray(table.rows["sent_s"][row] + events.us[events.start[row] : events.start[row + 1]] * 1e-6)


def _decode_point(batch: int, runs: Sequence[Run]) -> DecodePoint:
    shown = [run for run in runs if run.step_ms]
    return DecodePoint(batch, median(run.context for run in shown), median(run.step_ms for run in shown))


def _mixed_error_percent(measure: Measure, design: Design, profile: Profile) -> float | None:
    """Mean error of the worst gap that a late prompt makes among decodes; None when none could be measured."""
    perf = PerfModel(model_of(Shape(1, 0, 1.0, 1.0, 1, 2.0), "live", ""), profile)
    batch, prompt = design.mixed_batch, design.batch_prompt
    prefill_s = perf.prefill_s(batch * prompt, batch * prompt**2)
    step_s = perf.decode_s(batch, batch * (prompt + design.output // 2))
    late_s = prefill_s + design.output / 2 * step_s
    episodes = [Episode(prompt, batch, design.output, late, late_s) for late in design.mixed]
    seen = _play(measure, episodes * design.repeats)
    gaps = {episode: [run.worst_gap_ms for run in runs if run.worst_gap_ms] for episode, runs in seen.items()}
    errors = [abs(_mixed_ms(perf, episode) / median(worst) - 1) for episode, worst in gaps.items() if worst]
    return 100 * float(np.mean(errors)) if errors else None


def _mixed_ms(perf: PerfModel, episode: Episode) -> float:
    """The iteration that holds the whole late prompt beside the decodes: a server that cuts prompts shows less."""
    context = episode.batch * (episode.prompt + episode.output // 2)
    return perf.mixed_s(episode.late, episode.late**2, episode.batch, context) * 1e3
