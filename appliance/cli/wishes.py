"""The options that say what the planner may not choose freely."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from appliance.settings import EngineChoice


class LayersType(click.ParamType[int | None]):
    """`auto` (None) or a number of layers; `n_layer + 1` means all, as llama.cpp counts."""

    name = "auto|N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value is None or isinstance(value, int):
            return value
        text = str(value)
        if text == "auto":
            return None
        if text.isdigit():
            return int(text)
        return self.fail(f"{text!r} is neither auto nor a number of layers", param, ctx)


ENGINES: tuple[EngineChoice, ...] = ("auto", "llama-server", "xllamacpp", "llama-cpp-python")

ctx_option = click.option("--ctx", type=click.IntRange(min=256), help="Tokens per request.")
parallel_option = click.option("--parallel", type=click.IntRange(1, 256), help="Slots: requests at once.")
kv_option = click.option("--kv", type=click.Choice(["f16", "q8_0", "q4_0"]), help="Type of the KV cache.")
layers_option = click.option("--gpu-layers", type=LayersType(), help="Layers on the GPU; auto by default.")
engine_option = click.option("--engine", type=click.Choice(ENGINES), help="Which engine; auto by default.")

ubatch_option = click.option(
    "--ubatch", type=click.IntRange(1, 65_536), metavar="N", help="Tokens that are worked on at once."
)
cpu_moe_option = click.option(
    "--cpu-moe",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="The first N blocks keep their experts in RAM.",
)
split_option = click.option(
    "--split",
    type=click.Choice(["layer", "row", "tensor"]),
    help="How several GPUs share the model; whole layers by default.",
)
profile_option = click.option(
    "--profile",
    type=click.Choice(["chat", "docs", "batch"]),
    help="What it is for; `engine.profile` of the settings by default.",
)
draft_option = click.option("--draft", metavar="MODEL|FILE", help="A small model that proposes tokens.")
