"""Embedders on this machine, and the command that installs one."""

import hashlib
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory.agents import lifecycle
from refinement.embedding import embed
from refinement.llm import downloads, local
from refinement.llm.base import ModelNotConfigured, ModelReplyInvalid
from refinement.llm.checks import default_embedder_is_there
from refinement.llm.embedders import open_embedder
from tests.commands.calling import failed, run
from tests.conftest import House
from tests.embedding import tiny
from tests.embedding.server import vector
from tests.embedding.steps import found, state, vectors
from tests.steps import ME, remember

pytestmark = pytest.mark.database


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.EMBEDDERS_DIR = tmp_path
    tiny.made_in(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.usefixtures("folder")
def test_an_agent_searches_by_meaning_without_a_provider(house: House) -> None:
    lifecycle.change(house.ada, ME, embedder="local/tiny")
    remember(house.ada, "Ana fixed the car", "Bob likes tea")
    assert embed(house.ada.pk) == "embedded"
    assert vectors(house.ada) == {1: "local/tiny", 2: "local/tiny"}
    assert found(house.ada, "vehicle repair") == [1]


def test_texts_of_any_length_keep_their_order(folder: Path) -> None:
    texts = ["car " * 400, "tea", "bob", "repair vehicle"] * 9
    made = open_embedder("local/tiny").embed(texts, seconds=1, retries=0).vectors
    one = [open_embedder("local/tiny").embed([text], seconds=1, retries=0).vectors[0] for text in texts[1::2]]
    assert all(pytest.approx(each, abs=1e-5) == other for each, other in zip(made[1::2], one, strict=True))
    assert pytest.approx(made[0], abs=1e-3) == vector("car")


def test_the_first_token_counts_if_the_model_says_so(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    [made] = open_embedder("local/tiny").embed(["tea car"], seconds=1, retries=0).vectors
    assert pytest.approx(made, abs=1e-5) == vector("tea")


@pytest.mark.parametrize(("name", "problem"), [("missing", "no folder missing"), ("broken", "cannot be loaded")])
def test_a_model_that_cannot_be_loaded_is_named(house: House, folder: Path, name: str, problem: str) -> None:
    if name == "broken":
        tiny.made_in(folder.parent / "broken")
        (folder.parent / "broken" / "model.onnx").write_bytes(b"x")
    lifecycle.change(house.ada, ME, embedder=f"local/{name}")
    remember(house.ada, "Ana fixed the car")
    assert embed(house.ada.pk) == "failed"
    assert problem in state(house.ada).problem
    assert found(house.ada, "car") == [1]


def test_values_that_are_not_numbers_are_refused(folder: Path) -> None:
    tiny.made_in(folder.parent / "nan", values=float("nan"))
    with pytest.raises(ModelReplyInvalid):
        open_embedder("local/nan").embed(["tea"], seconds=1, retries=0)


def test_without_the_extra_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ModelNotConfigured, match=r"pip install 'palimpsest\[local\]'"):
        local.Local(folder)


@pytest.fixture
def mirror(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server with the files of a known model."""
    settings.EMBEDDERS_DIR = tmp_path / "installed"
    files = tmp_path / "mirror" / "acme" / "model" / "resolve" / "r1"
    tiny.made_in(files)
    sums = {name: hashlib.sha256((files / name).read_bytes()).hexdigest() for name in ("model.onnx", "tokenizer.json")}
    monkeypatch.setattr(downloads, "KNOWN", {"small": downloads.Known("acme/model", "r1", sums)})

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path / "mirror"))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    settings.EMBEDDERS_URL = f"http://127.0.0.1:{server.server_port}/"
    yield files
    server.shutdown()
    server.server_close()


def test_a_model_is_installed_once(mirror: Path, settings: Any) -> None:
    assert "local/small is installed in" in run("embedder", "install", "small").out
    assert (settings.EMBEDDERS_DIR / "small" / "model.onnx").read_bytes() == (mirror / "model.onnx").read_bytes()
    for path in mirror.iterdir():
        path.unlink()
    run("embedder", "install", "small")
    assert len(open_embedder("local/small").embed(["tea"], seconds=1, retries=0).vectors) == 1


def test_another_file_is_not_installed(mirror: Path, settings: Any) -> None:
    (mirror / "tokenizer.json").write_text("{}")
    failed(run("embedder", "install", "small"), 1, "its SHA-256 differs")
    assert sorted(path.name for path in (settings.EMBEDDERS_DIR / "small").iterdir()) == ["model.onnx"]


def test_a_server_that_is_away_or_has_no_such_file(mirror: Path, settings: Any) -> None:
    (mirror / "model.onnx").unlink()
    failed(run("embedder", "install", "small"), 1, "could not be downloaded")
    settings.EMBEDDERS_URL = "http://127.0.0.1:9"
    failed(run("embedder", "install", "local/small"), 1, "Set EMBEDDERS_URL to a mirror")
    assert list(settings.EMBEDDERS_DIR.iterdir()) == [], "no empty folder is left"
    failed(run("embedder", "install", "other"), 2, "invalid choice")


def test_a_default_embedder_that_is_not_installed_is_a_warning(settings: Any, tmp_path: Path) -> None:
    settings.EMBEDDERS_DIR = tmp_path
    settings.EMBEDDER = "local/all-MiniLM-L6-v2"
    [warning] = default_embedder_is_there()
    assert "embedder install all-MiniLM-L6-v2" in warning.msg
    settings.EMBEDDER = "local/own"
    assert "install" not in default_embedder_is_there()[0].msg
    tiny.made_in(tmp_path / "own")
    assert default_embedder_is_there() == []
    settings.EMBEDDER = ""
    assert default_embedder_is_there() == []
