"""GGUF headers: what a model file holds, read in milliseconds and without its tensor data.

The whole interface of this room is what is exported here.
"""

from __future__ import annotations

from appliance.gguf.header import ArrayInfo, Header, MetaValue, TensorInfo
from appliance.gguf.reader import read_header, read_header_bytes
from appliance.gguf.shape import ModelShape, shape_of
from appliance.gguf.shards import ShardName, check_set, merged, shards_of
from appliance.gguf.stub import StubPart, header_bytes, write_stub, write_stubs
from appliance.gguf.tensor_types import TENSOR_TYPES, TensorType

__all__ = [
    "TENSOR_TYPES",
    "ArrayInfo",
    "Header",
    "MetaValue",
    "ModelShape",
    "ShardName",
    "StubPart",
    "TensorInfo",
    "TensorType",
    "check_set",
    "header_bytes",
    "merged",
    "read_header",
    "read_header_bytes",
    "shape_of",
    "shards_of",
    "write_stub",
    "write_stubs",
]
