"""Embedders that run on this machine, on the CPU. They need the extra `local`: pip install palimpsest[local].

A model is a folder in EMBEDDERS_DIR, with the files of a model on Hugging Face: `model.onnx` (or `onnx/model.onnx`) and
`tokenizer.json`. `palimpsest embedder install` makes such a folder. Nothing is downloaded here.
"""

import importlib.util
import json
import os
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings

from config import PROGRAM
from refinement.llm.base import ModelNotConfigured, ModelReplyInvalid
from refinement.llm.downloads import KNOWN
from refinement.llm.vectors import Embedded, checked

MAX_TOKENS = 256  # of a text, unless the model's own files say more
TEXTS = 16  # that run at the same time; longer texts need much RAM


def problem_of(folder: Path) -> str:
    """What a model lacks that is to be in this folder, or an empty text."""
    if not all(importlib.util.find_spec(package) for package in ("onnxruntime", "tokenizers")):
        return "Local embedders need more packages: pip install 'palimpsest[local]'."
    if not _model(folder) or not (folder / "tokenizer.json").exists():
        hint = f" Run: {PROGRAM} embedder install {folder.name}" if folder.name in KNOWN else ""
        return f"EMBEDDERS_DIR has no folder {folder.name} with model.onnx and tokenizer.json.{hint}"
    return ""


def _model(folder: Path) -> Path | None:
    return next((path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.exists()), None)


class Local:
    """A model in RAM. All threads of the process share it."""

    def __init__(self, folder: Path) -> None:
        if missing := problem_of(folder):
            raise ModelNotConfigured(missing)
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, (os.cpu_count() or 1) // 2)
        try:
            providers = ["CPUExecutionProvider"]
            self._session = onnxruntime.InferenceSession(str(_model(folder)), options, providers=providers)
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as problem:  # both libraries raise their own errors, without a common class
            raise ModelNotConfigured(
                f"The local embedder {folder.name} cannot be loaded: its files are damaged, or not a model. Install it "
                "again."
            ) from problem
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._uses_first_token = _setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token") is True
        most = _setting(folder / "sentence_bert_config.json", "max_seq_length") or MAX_TOKENS
        self._tokenizer.enable_truncation(int(most))
        self._tokenizer.enable_padding()
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], **_: float) -> Embedded:
        """Embed the texts. Nothing is sent, so a limit of seconds or retries has no effect."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # texts of similar length need less time
        vectors: list[Sequence[float]] = [()] * len(texts)
        for start in range(0, len(order), TEXTS):
            places = order[start : start + TEXTS]
            for place, vector in zip(places, self._run([texts[place] for place in places]), strict=True):
                vectors[place] = vector
        return Embedded(checked(vectors, len(texts), "The local embedder"), 0)

    def _run(self, texts: list[str]) -> list["array[float]"]:
        with self._lock:
            encoded = self._tokenizer.encode_batch(texts)
        mask = np.array([each.attention_mask for each in encoded], np.int64)
        ids = np.array([each.ids for each in encoded], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            output: Any = self._session.run(None, {name: given[name] for name in self._inputs})[0]
        except Exception as problem:  # as above
            raise ModelReplyInvalid("The local embedder failed: check its files.") from problem
        if output.ndim == 3 and self._uses_first_token:
            output = output[:, 0]
        elif output.ndim == 3:
            output = (output * mask[..., np.newaxis]).sum(axis=1) / np.maximum(mask.sum(axis=1, keepdims=True), 1)
        return [array("f", row.astype(np.float32).tobytes()) for row in output]


def _setting(path: Path, name: str) -> Any:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found.get(name) if isinstance(found, dict) else None
    return None


_loading = threading.Lock()
_loaded = lru_cache(maxsize=4)(Local)


def open_model(name: str) -> Local:
    """Load a model, or return the loaded one. Raises ModelNotConfigured."""
    with _loading:
        return _loaded(settings.EMBEDDERS_DIR / name)
