"""Processes of our own that run functions: a crash, a hang or too much memory ends one of them, and nothing else.

``results`` collects their results, and those of any other executor. This file needs no torch, because ``toolchain`` is
loaded without it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from regional_explorer.compiler.run import Run
from regional_explorer.errors import InvalidArgumentError, shown_value

P = ParamSpec("P")
T = TypeVar("T")

GRACE_S = 2.0
"""Seconds after SIGTERM until a process that still runs is killed."""

POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""

_CODE = (
    "import sys; sys.path[:] = {path!r}; from regional_explorer.compiler.workers import serve; serve({fd}, {memory!r})"
)


_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")


class LostWorkerError(Exception):
    """A process ended before it returned a result, or could not be started; the text says how.

    It has ``crashed`` if its own code ended it: the same task would end it again.
    """

    def __init__(self, text: str, *, crashed: bool = False) -> None:
        super().__init__(text)
        self.crashed = crashed


def can_have_workers() -> bool:
    """Return whether this platform has process groups and sessions, and the path of the Python interpreter is known."""
    return os.name == "posix" and bool(sys.executable)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(Executor):
    """Runs functions in ``count`` processes; each of them starts when it is first needed.

    If a process ends, its task raises LostWorkerError, and a new process runs the next task. Each process ends with the
    process that started it, however that one ends. It runs in its own session, so that an interrupt of a cell does not
    reach it. Unlike a process of ``multiprocessing`` it does not import the user's ``__main__``. It must not use a GPU.
    It gets no more than ``memory`` bytes, by default what is available when it starts.
    """

    def __init__(self, count: int, *, memory: int | None = None) -> None:
        self._count, self._memory = count, memory
        self._tasks: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy: dict[Future[Any], _Process] = {}
        self._processes: set[_Process] = set()
        self._lock = threading.Lock()
        self._is_shut = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run; each is the id of its process group too."""
        return [process.pid for process in list(self._processes)]

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let a process call a function, which it imports by name.

        Raises:
            RuntimeError: the processes were ended.
            Exception: an argument cannot be pickled.
        """
        content, future = pickle.dumps((fn, args, kwargs)), Future[T]()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("These processes were ended.")
            self._tasks.put((future, content))
            if len(self._threads) < self._count:
                name = f"regional-explorer-worker-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def end(self, future: Future[Any]) -> None:
        """End the process that runs the task of ``future``, if any."""
        with self._lock:
            if (process := self._busy.get(future)) is not None:
                process.end()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: FBT001, FBT002 - as of any executor
        """End the processes, also busy ones: running tasks are lost, waiting tasks are cancelled."""
        del cancel_futures
        with self._lock:
            self._is_shut = True
            with contextlib.suppress(queue.Empty):
                while (task := self._tasks.get_nowait()) is not None:
                    task[0].cancel()
            for process in self._busy.values():
                process.end()
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        """Run tasks in one process, one after the other; start a new process if it is lost."""
        process: _Process | None = None
        while (task := self._tasks.get()) is not None:
            future, content = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if process is None:
                    process = _Process(self._memory, max(1, cores() // self._count))
                    self._processes.add(process)
                with self._doing(future, process):
                    is_done, value = pickle.loads(process.run(content))  # noqa: S301 - our own process, our own code
            except Exception as error:  # noqa: BLE001 - LostWorkerError, or any error of an import that the value needs
                is_done, value = False, error
            if isinstance(value, LostWorkerError):
                self._end(process)
                process = None
            (future.set_result if is_done else future.set_exception)(value)
        self._end(process)

    def _end(self, process: _Process | None) -> None:
        if process is not None:
            process.end()
            self._processes.discard(process)

    @contextlib.contextmanager
    def _doing(self, future: Future[Any], process: _Process) -> Iterator[None]:
        with self._lock:
            if self._is_shut:
                raise LostWorkerError("it was ended")
            self._busy[future] = process
        try:
            yield
        finally:
            with self._lock:
                del self._busy[future]


class _Process:
    """One process, which runs one task after the other; ``build_threads`` is its number of compile threads."""

    def __init__(self, memory: int | None, build_threads: int) -> None:
        self._connection, theirs = Pipe()
        memory = _available_bytes() if memory is None else memory
        environment = {
            **os.environ,
            "TORCHINDUCTOR_COMPILE_THREADS": str(build_threads),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_WAIT_POLICY": "PASSIVE",  # nothing is timed there: cores may sleep between two kernels
        }
        with theirs:
            try:
                # Our own interpreter with our own code.
                self._process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-c", _CODE.format(path=sys.path, fd=theirs.fileno(), memory=memory)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                raise LostWorkerError(f"no process could be started: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, content: bytes) -> bytes:
        """Return the result of a task.

        Raises:
            LostWorkerError: the process has ended.
        """
        try:
            self._connection.send_bytes(content)
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            self.end()
            status = self._process.returncode
            name = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise LostWorkerError(f"its process ended by {name}", crashed=name in _CRASHES) from error

    def end(self) -> None:
        """End the process and its own children, and wait for it. On SIGTERM a compiler removes its temporary files."""
        self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal_group(signal.SIGKILL)
            self._process.wait()

    def _signal_group(self, number: int) -> None:
        # Until it has been waited for, no other process can have its id.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def _available_bytes() -> int | None:
    """Return how many bytes of memory are available; None if the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split() for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        return next((1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:"), None)
    return None


def run_alone(function: Callable[[Any], T], argument: Any, cancelled: Callable[[], bool]) -> T:
    """Return the result of a function that runs in a process of its own, which ends with the call.

    Raises:
        CancelledError: it was cancelled meanwhile.
        LostWorkerError: the process could not be started, or has ended without a result.
        Exception: whatever the function raises.
    """
    with Workers(1) as workers:
        future = workers.submit(function, argument)
        while not future.done():
            if cancelled():
                raise CancelledError
            concurrent.futures.wait([future], POLL_S)
        return future.result()


def in_a_copy(
    work: Callable[[], T], cancelled: Callable[[], bool], at_rest: contextlib.AbstractContextManager[object]
) -> T | None:
    """Return the result of ``work`` in a copy of this process, which ends with the call; None if it fails there.

    It is for work that fills caches on disk, and needs objects that cannot be sent to another process. The copy has
    the calling thread alone, so that this must not be a thread that runs parallel kernels. While it is made, the block
    of ``at_rest`` keeps other threads out of what the work uses.

    Raises:
        CancelledError: it was cancelled meanwhile.
    """
    ours, theirs = Pipe(duplex=False)
    with at_rest:
        pid = os.fork()
        if not pid:
            _run_in_copy(work, theirs)
    theirs.close()
    try:
        with contextlib.suppress(OSError):  # the copy does it too: whichever is first
            os.setpgid(pid, pid)
        while not ours.poll(POLL_S):
            if cancelled():
                raise CancelledError
        return cast("T", pickle.loads(ours.recv_bytes()))  # noqa: S301 - our own process
    except (EOFError, OSError):
        return None
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGTERM)  # its compilers too
        os.waitpid(pid, 0)


def _run_in_copy(work: Callable[[], object], connection: Connection) -> NoReturn:
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        sys.stdout = sys.stderr = io.StringIO()
        connection.send_bytes(pickle.dumps(work()))
    finally:
        os._exit(0)  # nothing of the process that was copied is cleaned up twice


AnyExecutor = Executor | int
"""An executor, or a number of processes of our own; 0 stands for this process."""


def checked_executor(executor: object) -> AnyExecutor:
    """Return the checked argument ``executor``.

    Raises:
        InvalidArgumentError: it is neither an executor nor a valid number of processes.
    """
    if isinstance(executor, Executor):
        return executor
    if isinstance(executor, int) and not isinstance(executor, bool) and executor >= 0:
        if executor and not can_have_workers():
            raise InvalidArgumentError(
                f"executor={executor}: processes can only be started on Linux and macOS. Omit executor= to compile "
                "in this process, or give a concurrent.futures.Executor."
            )
        return executor
    raise InvalidArgumentError(
        f"executor={shown_value(executor)}: give a number of processes to start, or a concurrent.futures.Executor, "
        "such as Client.get_executor() of Dask."
    )


class GivenUpError(Exception):
    """No task was completed for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no result for {seconds} s")
        self.seconds = seconds


def results(
    executor: Executor,
    function: Callable[[bytes], bytes],
    tasks: Mapping[str, bytes],
    run: Run,
    timeout_s: Callable[[], float],
) -> Iterator[tuple[str, bytes | Exception]]:
    """Yield each task's key with the function's result or the executor's error, in the order of completion.

    The error is a GivenUpError for running tasks if no task was completed for ``timeout_s``, and a BrokenExecutor for
    tasks that the executor does not take. When ``run`` is cancelled, the remaining tasks are ended.
    """
    futures: dict[Future[bytes], str] = {}
    try:
        for key, content in tasks.items() if not run.cancelled() else ():
            try:
                futures[executor.submit(function, content)] = key
            except Exception as error:  # noqa: BLE001 - an executor that raises takes no work
                yield key, BrokenExecutor(f"{type(error).__name__}: {error}")
        progressed_s = time.monotonic()
        while futures:
            done_part = 1.0 - len(futures) / len(tasks)
            run.progress(f"in other processes ({len(tasks) - len(futures)} of {len(tasks)} done)", done_part)
            done, _ = concurrent.futures.wait(futures, POLL_S, FIRST_COMPLETED)
            for future in done:
                yield futures.pop(future), _result_or_error(future)
            if run.cancelled():
                return
            stuck = list[Future[bytes]]()
            if not done and time.monotonic() - progressed_s > timeout_s():
                stuck = [future for future in futures if future.running()] or list(futures)
            for future in stuck:
                _end(executor, future)
                yield futures.pop(future), GivenUpError(timeout_s())
            if done or stuck:
                progressed_s = time.monotonic()
    finally:
        for future in futures:
            _end(executor, future)


def _result_or_error(future: Future[bytes]) -> bytes | Exception:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - whatever an executor raises
        return error


def _end(executor: Executor, future: Future[bytes]) -> None:
    if not future.cancel() and isinstance(executor, Workers):
        executor.end(future)


# ------------------------------------------------------------------------------------------------------- in the process


def serve(fd: int, memory: int | None) -> None:
    """Run the tasks from the connection ``fd``, in a worker process, until the parent process ends and so closes it.

    The worker then ends, even in a task. A compiler that it runs gets SIGTERM as well, and removes its temporary
    files.
    """
    os.set_inheritable(fd, False)  # noqa: FBT003 - of the standard library
    connection = Connection(fd)
    _limit_memory(memory)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                tasks.put(connection.recv_bytes())
        finally:
            os.killpg(0, signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()
    while True:
        connection.send_bytes(_pickled_result(tasks.get()))


def _pickled_result(content: bytes) -> bytes:
    try:
        function, args, kwargs = pickle.loads(content)  # noqa: S301 - from the process that started this one
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001 - raised in the process that asked
        try:
            return pickle.dumps((False, error))
        except Exception:  # noqa: BLE001 - pickling may raise anything
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _limit_memory(memory: int | None) -> None:
    """Let allocations beyond ``memory`` bytes fail, and let the system end this process first if memory runs out."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        if memory is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
