"""The ``%regional_compile`` magic: it parses the line or cell, explores its call, and shows the result or usage."""

from __future__ import annotations

import ast
import atexit
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand

from regional_explorer.command.options import CommandError, completions, help_text, read_options, split_line
from regional_explorer.command.parsed_command import CallText, Command, read_call, split_cell
from regional_explorer.compiler import toolchain
from regional_explorer.compiler.progress_line import find_place
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.errors import RegionalExplorerError, listing
from regional_explorer.record.plan import Plan

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from regional_explorer.exploration.exploration import Exploration


MAGIC = "regional_compile"

USAGE = f"""See, compile and measure the regions of one call.

    %{MAGIC} [options] f(x, y)       one line: the call
    %%{MAGIC} [options]              the cell runs; its last line is the call

Without a region nothing is compiled, and the call is profiled.

Options go before the call; everything after them is the call. A semicolon at its end suppresses output. The call's
function, arguments and gradients are left unchanged. To keep the Exploration, assign the result, `ex = %{MAGIC} f(x)`,
or use `-o ex`.

{help_text()}

Example

    %{MAGIC} -r mlp=modules:layers.*.mlp -c mlp:max_fusion_size=8 --budget 3 -o ex model(x)
"""

EARLIER_PLAN = "earlier_plan"
"""The variable that gets the plan of an earlier exploration of the same call, if that plan had other regions."""


@magics_class
class RegionalMagics(Magics):
    """The magics class: parses the line, explores the call, and displays the results."""

    shell: Any  # IPython sets it

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._explored: WeakValueDictionary[str, Exploration] = WeakValueDictionary()

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def regional_compile(
        self, line: str = "", cell: str | None = None, local_ns: dict[str, Any] | None = None
    ) -> Exploration | None:
        """Replaced by ``USAGE`` below."""
        __tracebackhide__ = True  # IPython leaves this frame out of tracebacks of the cell's own lines
        verbose = "--verbose" in line.split()
        first_word = next(iter(line.split()), "")
        if first_word in {"-h", "--help", "?"} or (cell is None and not first_word):
            print(USAGE)  # noqa: T201 - the help that an empty line requests
            return None
        with _as_usage_error(verbose=verbose):
            command, source_before, call = self._parse_line_and_cell(line, cell)
            with _showing_import():  # the checks import torch too
                command.check()
                importlib.import_module("regional_explorer.ui.display")
        # Outside of that block, so that exceptions of the user's own lines keep their traceback.
        self._run_source(source_before)
        with _as_usage_error(verbose=verbose):
            return self._explore_and_show(command, call, local_ns, source=f"{line}\n{cell}")

    def _parse_line_and_cell(self, line: str, cell: str | None) -> tuple[Command, str, CallText]:
        """Return the parsed command, the source to run before the call, and the call."""
        words, call = split_line(line)
        command = Command(**read_options(words))
        if cell is None:
            return command, "", read_call(call)
        if call:
            raise CommandError(f"In a cell the call is the last line, but {call!r} follows %%{MAGIC}. Move it there.")
        source_before, last_line = split_cell(self.shell.transform_cell(cell))
        return command, source_before, read_call(last_line)

    def _run_source(self, source: str) -> None:
        """Run lines of the cell so that functions defined there have source lines, which a plain exec does not give."""
        __tracebackhide__ = True
        if not source.strip():
            return
        # An empty line replaces the magic's, so that line numbers in tracebacks and tables match the cell's.
        source = f"\n{source}"
        name = self.shell.compile.cache(source, self.shell.execution_count, raw_code=source)
        tree = self.shell.transform_ast(ast.parse(source))
        exec(self.shell.compile(tree, name, "exec"), self.shell.user_ns)  # noqa: S102 - the user's cell

    def _explore_and_show(
        self, command: Command, call: CallText, local_ns: Mapping[str, Any] | None, *, source: str
    ) -> Exploration:
        from regional_explorer.ui.control import control_of
        from regional_explorer.ui.display import display_for, skip_display_of_value

        earlier = self._explored.get(source)
        earlier_plan = None if earlier is None else earlier.plan
        del earlier  # only the variable that is bound below may hold the earlier exploration
        fn, args, kwargs = call.evaluate(self.shell.user_ns, local_ns)
        try:
            exploration = command.explore(fn, args, kwargs)
        except KeyboardInterrupt:
            raise CommandError("Interrupted while capturing the call. There are no results to show.") from None
        self._explored[source] = exploration
        if command.output is not None:  # bound first, so that an interrupt keeps the results so far
            self.shell.user_ns[command.output] = exploration
        only_profile = command.only_profiles(exploration)
        if call.quiet:
            if not command.measure(exploration, PLAIN_RUN, only_profile=only_profile):
                print("Interrupted. The results so far are kept.")  # noqa: T201 - no display is made
            command.finish(exploration)
            skip_display_of_value(exploration)
            return exploration
        display = display_for(exploration, widget=command.widget)
        display.set_benchmark(command.variants, command.budget)
        display.begin()
        if note := self._note_on_earlier_plan(
            earlier_plan, exploration.plan, command.output or control_of(exploration).owner()
        ):
            display.show_note(note)
        if command.bench and not (only_profile and display.profile_in_background()):
            with display.working("Profile" if only_profile else "Compile & measure") as run:
                compared = display.compared_at_first
                complete = command.measure(exploration, run, only_profile=only_profile, default=compared)
            if complete:
                display.compare_in_background()
            else:
                display.show_note("Interrupted. The results so far are shown.")
        display.finish()
        if (saved_path := command.finish(exploration)) is not None:
            display.show_note(f"Saved to {saved_path}.")
        return exploration

    def _note_on_earlier_plan(self, earlier: Plan | None, plan: Plan, name: str) -> str:
        """Return how to get back the regions that an earlier exploration of the same source had."""
        lost = [repr(region.name) for region in (earlier or Plan()).regions if region.name not in plan]
        if not lost:
            return ""
        self.shell.user_ns[EARLIER_PLAN] = earlier
        return (
            f"The call was explored again, without the earlier {'region' if len(lost) == 1 else 'regions'} "
            f"{listing(lost)}: {name}.plan = {EARLIER_PLAN} restores the earlier plan."
        )


RegionalMagics.regional_compile.__doc__ = USAGE


@contextmanager
def _showing_import() -> Iterator[None]:
    """Context manager around the first imports, which take seconds: show that at once, below the cell."""
    place = find_place() if "regional_explorer.ui.display" not in sys.modules else None
    if place is not None:
        place.show(f"importing {'regional_explorer' if 'torch' in sys.modules else 'torch'} …", 0.0)
    try:
        yield
    finally:
        if place is not None:
            place.erase()


@contextmanager
def _as_usage_error(*, verbose: bool) -> Iterator[None]:
    """Context manager: turn this package's errors into one-line usage errors, unless ``verbose``."""
    try:
        yield
    except RegionalExplorerError as error:
        if verbose:
            raise
        raise UsageError(str(error)) from error


# -------------------------------------------------------------------------------------------------------- ahead of time


IDLE_S = 0.5
"""Seconds without a running cell before the next stage starts."""


class Preload:
    """Runs ``stages`` on a background thread, each while no cell runs, once torch has been imported.

    A cell that starts during a stage waits for it: two threads inside torch's circular imports may see partially
    initialized modules. ``afterwards`` may run in parallel with cells. Without torch imported nothing runs. Exceptions
    stop the thread silently: code that needs the same import will raise them again.
    """

    def __init__(
        self, stages: Sequence[Callable[[], object]], afterwards: Callable[[], object], idle_s: float = IDLE_S
    ) -> None:
        self._stages = stages
        self._afterwards = afterwards
        self._idle_s = idle_s
        self._events: Any = None
        self._stage_lock = threading.Lock()
        self._idle = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def attach(self, events: Any) -> None:
        """Register for IPython's ``events`` of cells."""
        self._events = events
        self._stopped, self._thread = threading.Event(), None
        events.register("pre_execute", self.before_cell)
        events.register("post_execute", self.after_cell)
        atexit.register(self.stop)

    def detach(self) -> None:
        """Unregister from the events, and stop."""
        if self._events is not None:
            self._events.unregister("pre_execute", self.before_cell)
            self._events.unregister("post_execute", self.after_cell)
            self._events = None
            atexit.unregister(self.stop)
            self.stop()

    def before_cell(self) -> None:
        """Block further stages, and wait for the running one."""
        self._idle.clear()
        with self._stage_lock:
            pass

    def after_cell(self) -> None:
        """Allow stages to run; start the thread if torch has been imported."""
        self._idle.set()
        if self._thread is None and not self._stopped.is_set() and "torch" in sys.modules:
            self._thread = threading.Thread(
                target=self._run_stages, args=(self._stopped,), name="regional-explorer-preload", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Start no further stage, and wait for the running one."""
        self._stopped.set()
        self._idle.set()
        with self._stage_lock:
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all stages have run; return whether they have."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is not None and not self._thread.is_alive()

    def _run_stages(self, stopped: threading.Event) -> None:
        with suppress(Exception):
            for stage in self._stages:
                while not stopped.is_set() and not self._run_when_idle(stage, stopped):
                    pass
            if not stopped.is_set():
                self._afterwards()

    def _run_when_idle(self, stage: Callable[[], object], stopped: threading.Event) -> bool:
        """Run ``stage`` after ``idle_s`` without a cell; return False if a cell started meanwhile."""
        self._idle.wait()
        time.sleep(self._idle_s)
        with self._stage_lock:
            if stopped.is_set() or not self._idle.is_set():
                return False
            stage()
            return True


def _import_dynamo() -> None:
    import torch

    torch.compiler.list_backends()


preload = Preload(
    (
        _import_dynamo,
        partial(importlib.import_module, "regional_explorer.compiler.compilation"),
        partial(importlib.import_module, "regional_explorer.exploration.exploration"),
        partial(importlib.import_module, "regional_explorer.ui.display"),
    ),
    afterwards=toolchain.probe_once_built,
)
"""The imports of the first exploration, in stages of a second or two."""


def _completion_matcher(shell: InteractiveShell) -> Any:
    """Return an IPython matcher that completes a line of the magic, and suppresses other completions."""

    @context_matcher(identifier=MAGIC)
    def match(context: CompletionContext) -> SimpleMatcherResult:
        # At the start of the line, or assigned: ``ex = %regional_compile``.
        found = re.search(rf"(?:^|=)\s*(%%?{MAGIC}\s.*)$", context.text_until_cursor)
        if found is None:
            return {"completions": []}
        fragment = re.split(r"[\s=:]", found[1])[-1]
        words = completions(shell.user_ns, found[1], context.line_with_cursor)
        matching = [SimpleCompletion(word, type="magic") for word in words if word.startswith(fragment)]
        return {"completions": matching, "matched_fragment": fragment, "suppress": bool(matching), "ordered": True}

    return match


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magic and its completion, and start preloading in the background."""
    shell.register_magics(RegionalMagics)
    matchers = shell.Completer.custom_matchers
    if not any(getattr(matcher, "matcher_identifier", "") == MAGIC for matcher in matchers):
        matchers.append(_completion_matcher(shell))
    if toolchain.is_warming_wanted():
        toolchain.build.start()
        preload.attach(shell.events)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unregister the magic and its completion."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(MAGIC, None)
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != MAGIC]
    preload.detach()
    toolchain.build.stop()
