"""The checks before torch's compilers are imported: torch's version, and the directory of their cache."""

import importlib
from pathlib import Path

import pytest
import torch

from regional_explorer import torch_api
from regional_explorer.errors import CacheDirectoryError, UnsupportedTorchError


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.3.0")
    with pytest.raises(UnsupportedTorchError, match=r"torch 2\.3\.0 is too old"):
        importlib.reload(torch_api)


def test_the_error_names_an_unusable_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(CacheDirectoryError, match=r"cannot be used.*Set TORCHINDUCTOR_CACHE_DIR") as raised:
        importlib.reload(torch_api)
    assert str(tmp_path) in str(raised.value)
