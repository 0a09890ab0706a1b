"""A JupyterLab server for the tests: no settings, kernels or extensions of the user, no network."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from pathlib import Path

START_TIMEOUT_S = 60.0
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "@jupyterlab/extensionmanager-extension/plugin": {"enabled": False},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LabServer:
    """Starts and stops JupyterLab below ``home``; notebooks go to ``folder``."""

    def __init__(self, home: Path, *, package_root: Path) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = home / "server.log"
        self._package_root = package_root
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for name, settings in SETTINGS.items():
            path = self.home / "settings" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings), encoding="utf-8")
        options = (
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.url.rpartition(':')[2]}",
            "--ServerApp.port_retries=0",
            "--ServerApp.open_browser=False",
            "--ServerApp.allow_root=True",
            "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={self.folder}",
            "--IdentityProvider.token=",
            "--LabApp.extension_manager=readonly",
            "--LabApp.news_url=",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server and, with it, its kernels."""
        process, self._process = self._process, None
        if process is None:
            return
        for sig in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sig)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def end_sessions(self, paths: Collection[str]) -> None:
        """End the kernels of these notebooks."""
        for session in json.loads(self._ask("/api/sessions")):
            if session["path"] in paths:
                self._ask(f"/api/sessions/{session['id']}", method="DELETE")

    def _environment(self) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "IPYTHON"))}
        paths = [str(self._package_root), *filter(None, [os.environ.get("PYTHONPATH")])]
        return environment | {
            "PYTHONPATH": os.pathsep.join(paths),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces"),
            "IPYTHONDIR": str(self.home / "ipython"),
        }

    def _answers(self) -> bool:
        try:
            self._ask("/api/status")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _ask(self, path: str, *, method: str = "GET") -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            body: bytes = answer.read()
            return body
