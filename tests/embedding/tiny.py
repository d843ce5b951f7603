"""A small embedder in ONNX: the vector of a token is random, and its concept decides it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from tests.embedding.server import CONCEPTS, vector

WORDS = sorted({*CONCEPTS, "ana", "bob", "the", "fixed", "likes"})


def made_in(folder: Path, *, values: float = 1.0) -> None:
    """Write `model.onnx` and `tokenizer.json`. All values of the vectors are multiplied by `values`."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(["[UNK]", *WORDS])}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.array([vector(word) for word in ["unknown", *WORDS]], np.float32) * np.float32(values)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [None, None]) for name in ("input_ids",)]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [None, None, table.shape[1]])
    gather = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph([gather], "tiny", inputs, [output], [numpy_helper.from_array(table, "table")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx"
    )
