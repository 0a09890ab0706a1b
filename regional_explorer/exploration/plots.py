"""Drawings of a session by matplotlib: ``ex.plot.gain()`` and others, each on given or on new axes."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regional_explorer.errors import MeasureError, MissingPackageError, require_notebook, user_facing_methods
from regional_explorer.picture.page_records import groups_of
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.figure import Figure
from regional_explorer.record.regions import region_timings_of_whole_call
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import interval_ends
from regional_explorer.record.statistics import CONFIDENCE, median_figure, paired_gaps
from regional_explorer.style.css import DARK, HUES, LIGHT, paint
from regional_explorer.style.element import clean, markup
from regional_explorer.style.formats import duration, signed, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE = "the whole call"


@user_facing_methods
class Plots:
    """Drawings of one session, which need matplotlib: ``pip install 'regional-explorer[plot]'``."""

    def __init__(self, session: Session) -> None:
        require_notebook("ex.plot", ("matplotlib",))
        self._session = session

    def gain(self, ax: Axes | None = None) -> Axes:
        """Draw the time that each region, measured alone, and the whole plan save in each call, with intervals.

        Raises:
            MeasureError: no compiled region and no plan was measured.
        """
        session = self._session
        alone = region_timings_of_whole_call(session)
        gains = {name: timing.gain_s for name, timing in alone.items() if timing.gain_s is not None}
        whole = session.whole_timings
        eager, plan = whole.get(VariantName.EAGER), whole.get(VariantName.REGIONAL)
        if eager is not None and plan is not None and not plan.numerics.withholds_speedup and not session.is_outdated:
            gains[WHOLE] = median_figure(paired_gaps(eager.samples_s, plan.samples_s))
        axes = self._axes(ax, gains, "run ex.benchmark() first.")
        numbers = [session.plan.numbers.get(name) for name in gains]
        colours = [LIGHT.quiet if number is None else paint(number).light.stroke for number in numbers]
        values_ms = [1e3 * gain.value for gain in gains.values()]
        axes.barh(list(map(clean, gains)), values_ms, color=colours, xerr=_whiskers_ms(list(gains.values())), capsize=3)
        axes.axvline(0.0, color=LIGHT.edge)
        axes.invert_yaxis()
        axes.set(xlabel=f"ms saved in each call, interval {CONFIDENCE:.0%}", title=clean(session.title))
        return axes

    def waterfall(self, ax: Axes | None = None) -> Axes:
        """Draw how the changes of the plan found lead from the time of ``torch.compile`` to its own, with intervals.

        Raises:
            MeasureError: ``ex.waterfall()`` was not run.
        """
        parts = self._session.tuning.parts if self._session.tuning else ()
        axes, at_ms = self._axes(ax, parts, "run ex.tune(), then ex.waterfall()."), 0.0
        ends_ms = list[float]()
        for row, part in enumerate(parts):
            part_ms = 1e3 * part.seconds.value
            before_ms, at_ms = (at_ms, at_ms - part_ms) if part.is_change else (0.0, part_ms)
            colour = paint(1 if part.is_change else 0).light.stroke
            axes.barh(clean(part.title), at_ms - before_ms, left=before_ms, color=colour)
            low, high = (1e3 * end for end in part.seconds.bounds or (part.seconds.value,) * 2)
            whisker = (before_ms - high, before_ms - low) if part.is_change else (low, high)
            axes.hlines(row, *whisker, color=LIGHT.ink)
            text = signed(-part.seconds.value) if part.is_change else duration(part.seconds.value)
            axes.annotate(text, (max(at_ms, before_ms, *whisker), row), (4, 0), textcoords="offset points", va="center")
            ends_ms += [at_ms, *whisker]
        lowest, highest = min(ends_ms), max(ends_ms)  # from zero on, the changes would be too small to be seen
        axes.set_xlim(max(0.0, lowest - (highest - lowest)), highest + 0.4 * (highest - lowest) + 1e-9)
        axes.invert_yaxis()
        axes.set(xlabel=f"ms of a call, interval {CONFIDENCE:.0%}", title=clean(self._session.title))
        return axes

    def samples(self, ax: Axes | None = None) -> Axes:
        """Draw the samples of every variant, round by round, to see when a benchmark was disturbed.

        Raises:
            MeasureError: no variant was measured.
        """
        timings = self._session.whole_timings
        axes = self._axes(ax, timings, "run ex.benchmark() first.")
        for number, (name, timing) in enumerate(timings.items()):
            samples_ms = [1e3 * seconds for seconds in timing.samples_s]
            axes.plot(samples_ms, ".", label=clean(word(name)), color=paint(number).light.stroke)
            axes.axhline(1e3 * timing.median_s.value, color=paint(number).light.stroke, linewidth=0.8)
        axes.set(xlabel="round", ylabel="ms", title=clean(self._session.title))
        axes.legend()
        return axes

    def timeline(self, ax: Axes | None = None) -> Axes:
        """Draw the ops of one eager call in the order they run, a row for each graph, coloured by module.

        Raises:
            MeasureError: the call was not profiled.
        """
        session, profile = self._session, self._session.profile
        axes = self._axes(ax, profile and profile.ops, "run ex.profile() first.")
        seconds = {(op.graph, op.node): op.seconds.value for op in profile.ops} if profile else {}
        graphs = [graph for graph in session.graphs if any((graph.id, node.name) in seconds for node in graph.ops)]
        modules: dict[str, int] = {}
        for row, graph in enumerate(graphs):
            start_ms = 0.0
            for node in graph.ops:
                op_ms = 1e3 * seconds.get((graph.id, node.name), 0.0)
                module = groups_of(node)["module"] or "outside modules"
                known = module in modules
                colour = paint(modules.setdefault(module, len(modules)) % HUES).light.stroke
                axes.barh(row, op_ms, left=start_ms, color=colour, label=None if known else clean(module))
                start_ms += op_ms
        axes.set_yticks(range(len(graphs)), [clean(graph.id) for graph in graphs])
        axes.invert_yaxis()
        axes.set(xlabel="ms of one eager call", title=clean(session.title))
        axes.legend(fontsize="small")
        return axes

    def _axes(self, ax: Axes | None, drawn: object, measure_first: str) -> Axes:
        """Return the axes to draw on.

        Raises:
            MeasureError: nothing is ``drawn``.
        """
        if not drawn:
            raise MeasureError(f"There is nothing to draw yet: {measure_first}")
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        return ax


def _whiskers_ms(figures: Sequence[Figure]) -> list[list[float]]:
    """Return how far the ends of intervals are below and above their values, in matplotlib's form.

    A file that was changed by hand may have a value outside its interval, and matplotlib refuses negative lengths.
    """
    intervals = [interval_ends(figure) for figure in figures]
    return [
        [1e3 * max(0.0, value - low) for low, value, _ in intervals],
        [1e3 * max(0.0, high - value) for _, value, high in intervals],
    ]


# ------------------------------------------------------------------------------------------------------ in saved pages

DRAWINGS: Mapping[str, tuple[str, str]] = {
    "gain": ("Gain", "The time that each region, measured alone, and the whole plan save in each call, with intervals"),
    "waterfall": ("Where the gain comes from", "What each change of the plan found saves of the time of torch.compile"),
    "samples": ("Samples", "The time of a call in each round, by variant"),
    "timeline": ("Timeline", "The ops of one eager call in the order they run, coloured by module"),
}
"""The title and the description of each drawing."""

LARGEST_DRAWING = 1 << 20
"""The most bytes of a drawing in a page: a larger one has many thousand marks."""

_PAGE_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regional_explorer",
    "text.parse_math": False,
    "legend.framealpha": 0.0,
    "axes.prop_cycle": "cycler('color', ['" + LIGHT.quiet + "'])",
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), LIGHT.ink),
    **dict.fromkeys(("axes.edgecolor", "legend.edgecolor"), LIGHT.edge),
}
"""The settings of matplotlib for a page: texts stay texts, and each colour is one that a dark page replaces."""

_DARK_COLOURS = {
    "#000000": DARK.ink,
    LIGHT.ink: DARK.ink,
    LIGHT.quiet: DARK.quiet,
    LIGHT.edge: DARK.edge,
    **{paint(number).light.stroke: paint(number).dark.stroke for number in range(HUES)},
}
"""The colours of a dark page, by the colours of a light one."""


def drawings(session: Session) -> dict[str, str]:
    """Return the drawings of the measured results as SVG, by title; empty without matplotlib."""
    try:
        plots = Plots(session)
    except MissingPackageError:
        return {}
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Sheet  # pyplot would choose a backend and keep the figure

    drawn = {}
    for name, (title, about) in DRAWINGS.items():
        file = io.StringIO()
        with rc_context(_PAGE_STYLE):
            sheet = Sheet(figsize=(8.0, 3.6), layout="constrained")
            try:
                getattr(plots, name)(sheet.add_subplot())
            except MeasureError:
                continue
            sheet.savefig(file, format="svg", transparent=True)
        if len(file.getvalue()) <= LARGEST_DRAWING:
            drawn[title] = _for_page(file.getvalue(), name, title, about)
    return drawn


def _for_page(svg: str, name: str, title: str, about: str) -> str:
    """Return matplotlib's SVG as an element of a page, with ids of its own and the colours of the page's theme."""
    start, _, content = svg[svg.index("<svg ") :].partition(">")
    (view_box,) = re.findall(r'viewBox="[^"]*"', start)
    # The style sheet of the SVG would apply to the whole page.
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", content, flags=re.DOTALL)
    content = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", content)
    colours = f"(?<=: )(?:{'|'.join(_DARK_COLOURS)})"
    content = re.sub(colours, lambda light: f"light-dark({light[0]},{_DARK_COLOURS[light[0]]})", content)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {view_box} '
        f'role="img" aria-labelledby="{name}-title {name}-about" '
        f'style="max-width:60rem;stroke-linejoin:round"><title id="{name}-title">{markup(title)}</title>'
        f'<desc id="{name}-about">{markup(about)}</desc>{content}'
    )
