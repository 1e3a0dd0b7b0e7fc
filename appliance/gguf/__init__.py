"""GGUF headers: what a model file holds, read in milliseconds and without its tensor data.

The whole interface of this room is what is exported here.
"""

from __future__ import annotations

from appliance.gguf.header import ArrayInfo, Header, MetaValue, TensorInfo
from appliance.gguf.projector import Encoder, encoders_of
from appliance.gguf.reader import read_header, read_header_bytes
from appliance.gguf.refused import Refused
from appliance.gguf.shape import ModelShape, shape_of
from appliance.gguf.shards import ShardName, check_set, merged, shards_of
from appliance.gguf.slim import Slim, read_slim, slim_of
from appliance.gguf.stub import StubPart, header_bytes, write_stub, write_stubs
from appliance.gguf.tensor_types import TENSOR_TYPES, TensorType

__all__ = [
    "TENSOR_TYPES",
    "ArrayInfo",
    "Encoder",
    "Header",
    "MetaValue",
    "ModelShape",
    "Refused",
    "ShardName",
    "Slim",
    "StubPart",
    "TensorInfo",
    "TensorType",
    "check_set",
    "encoders_of",
    "header_bytes",
    "merged",
    "read_header",
    "read_header_bytes",
    "read_slim",
    "shape_of",
    "shards_of",
    "slim_of",
    "write_stub",
    "write_stubs",
]
