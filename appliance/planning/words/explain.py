"""Why a plan is as it is: the model, the devices, what was chosen, and what had to give."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.planning.choice.candidate import Candidate
from appliance.planning.choice.estimate import Estimator, is_shared
from appliance.planning.choice.profiles import CHAT_CTX
from appliance.planning.choice.search import Choice, clamp_layers
from appliance.planning.choice.splits import counts, fits, host_room, room_of
from appliance.planning.memory.cache import quantised
from appliance.planning.result import Reason, Speed
from appliance.planning.values import DeviceMemory
from appliance.planning.words.accounts import RAM, mib_text
from appliance.units import size


def model_lines(estimator: Estimator) -> list[Reason]:
    """What the header says."""
    shape, total = estimator.shape, estimator.weights.total
    trained = f"trained for {shape.n_ctx_train} tokens" if shape.n_ctx_train else "trained context unknown"
    experts = f", {shape.n_expert_used} of {shape.n_expert} experts per token" if shape.n_expert else ""
    lines = [
        Reason(
            "model",
            f"{shape.arch}: {shape.n_layer} layers{experts}, weights {size(total)}, {trained}",
            total,
        )
    ]
    if not shape.known:
        lines.append(
            Reason(
                "unknown_arch",
                f"architecture {shape.arch} is not known here: each layer counts with a full-context cache",
            )
        )
    return lines


def device_lines(
    estimator: Estimator, listed: Sequence[DeviceMemory], taken: Candidate, *, fits: bool
) -> list[Reason]:
    """Why devices are used or left out. `fits`: the plan does."""
    used = {estimator.devices[index].name for index in estimator.used(taken)}
    candidates = {device.name for device in estimator.devices}
    lines: list[Reason] = []
    if not listed:
        who = "there is no GPU" if estimator.described else "the engine sees no GPU"
        lines.append(Reason("no_gpu", f"{who}: everything runs on the CPU"))
    for device in listed:
        if device.name in used or (device.name in candidates and not taken.gpu_layers):
            lines.extend(_used_lines(device))
        else:
            lines.append(
                Reason(
                    "device_unused",
                    f"{device.name} ({device.description}) is not used: "
                    f"{_why(device, device.name in candidates and fits)}",
                )
            )
    return lines


def _used_lines(device: DeviceMemory) -> list[Reason]:
    lines = []
    if device.free is None:
        text = f"free memory on {device.name} is unknown: the asked layers are taken to fit"
        lines.append(Reason("free_unknown", text))
    if is_shared(device):
        text = f"{device.name} shares the machine's RAM, so what it takes counts there, too"
        lines.append(Reason("shared", text))
    if device.software:
        text = f"{device.name} is made of the CPU: slow, used since layers were asked for"
        lines.append(Reason("software", text))
    return lines


def _why(device: DeviceMemory, could_be: bool) -> str:
    if could_be:
        return "the model is faster on fewer cards, and fits there"
    if device.software:
        return "it is made of the CPU, which is faster on its own"
    if device.free is None:
        return "its free memory is unknown; `--gpu-layers` uses it all the same"
    if device.integrated:
        return "a card with memory of its own is here"
    return "no layer goes there"


def choice_lines(estimator: Estimator, choice: Choice) -> list[Reason]:
    """What was chosen or asked, and what had to give."""
    request, taken = estimator.request, choice.candidate
    asked = "asked" if request.ctx and request.parallel else f"{request.profile} profile"
    text = f"{taken.parallel} x {taken.ctx} tokens (slots x context), KV cache {taken.kv_type} ({asked})"
    lines = [Reason("context", text)]
    if request.profile == "docs" and not request.ctx:
        text = (
            f"docs takes as much context as fits and keeps {request.decode_goal:g} tokens/s when it is full"
        )
        lines.append(Reason("docs", text))
    if request.ctx and request.ctx != taken.ctx:
        text = f"the asked {request.ctx} tokens are rounded up to {taken.ctx}, as the engine does"
        lines.append(Reason("padded", text))
    speed = estimator.speed(taken, 0)
    left_open = request.profile == "chat" and not request.parallel and not estimator.devices
    if left_open and speed is not None and speed < request.decode_goal:
        goal = f"the goal of {request.decode_goal:g} tokens/s"
        text = f"one request alone gets less than {goal}: two at once, not more"
        lines.append(Reason("slow_machine", text))
    trained = estimator.shape.n_ctx_train
    if trained and request.ctx and request.ctx > trained:
        text = f"{request.ctx} tokens were asked for; the model was trained for {trained}"
        lines.append(Reason("beyond_trained", text))
    if estimator.in_process_server:
        lines.append(Reason("single_request", "this engine works on one request at a time"))
    lines += _layer_lines(estimator, taken)
    return [*lines, *_extras(estimator, taken), *_given_up(estimator, choice)]


def _layer_lines(estimator: Estimator, taken: Candidate) -> list[Reason]:
    count, everything = taken.gpu_layers, estimator.all_layers
    word = "asked" if estimator.request.gpu_layers is not None else "chosen"
    used = [estimator.devices[index].name for index in estimator.used(taken)]
    if not used:
        return [Reason("layers", f"0 of {everything} layers on a GPU: the CPU does the work")]
    names = " and ".join(used)
    if count >= everything:
        text = f"all {everything} layers on {names}, output head included ({word})"
    else:
        text = f"{count} of {everything} layers on {names}, output head first ({word}); the rest in RAM"
    lines = [Reason("layers", text)]
    if len(used) > 1:
        each = counts(estimator, taken)
        parts = " and ".join(f"{n} on {name}" for n, name in zip(each, used, strict=True))
        how = {"layer": "whole layers", "row": "rows of each matrix", "tensor": "parts of each tensor"}
        lines.append(Reason("split", f"shared as {how[estimator.request.split]}: {parts}"))
    if taken.cpu_moe and taken.gpu_layers:
        blocks = sum(il < taken.cpu_moe for il in estimator.moe_blocks)
        text = f"experts of {blocks} of {len(estimator.moe_blocks)} blocks in RAM, all else of them as above"
        lines.append(Reason("experts", text))
    return lines


def _extras(estimator: Estimator, taken: Candidate) -> list[Reason]:
    lines = []
    if estimator.mmproj is not None:
        where = "on the GPU" if taken.mmproj == "gpu" else "in RAM: pictures take longer"
        text = f"the projector for pictures ({size(estimator.mmproj.weights)}) is {where}"
        lines.append(Reason("projector", text, estimator.mmproj.weights))
    if estimator.draft is not None:
        where = {"gpu": "on the GPU", "cpu": "in RAM", None: "left out: there is no room for it"}[taken.draft]
        lines.append(Reason("draft", f"the draft model ({size(estimator.draft.weights.total)}) is {where}"))
    for one in estimator.adapters:
        text = f"the adapter {one.name} ({size(one.n_bytes)}) changes the model at scale {one.scale:g}"
        lines.append(Reason("adapter", text, one.n_bytes))
    return lines


def _given_up(estimator: Estimator, choice: Choice) -> list[Reason]:
    """In order of sacrifice, each only when it differs from what was wanted."""
    wanted, taken = choice.wanted, choice.candidate
    if not choice.fits:
        return []  # the verdict says what is missing
    lines: list[Reason] = []
    if _differs(wanted, taken):
        if fits(estimator, estimator.estimate(wanted)):
            goal = (
                f"one request would get less than {estimator.request.decode_goal:g} tokens/s when it is full"
            )
            lines.append(Reason("slow", f"with {_words(estimator, wanted)} {goal}"))
        else:
            lines.append(Reason("tight", f"with {_words(estimator, wanted)} {lack(estimator, wanted)}"))
    if taken.n_ubatch < wanted.n_ubatch and taken.gpu_layers:
        text = f"so {taken.n_ubatch} tokens are worked on at once instead of {wanted.n_ubatch}"
        lines.append(Reason("ubatch", text))
    if quantised(taken.kv_type) and not quantised(wanted.kv_type):
        text = f"so the KV cache is {taken.kv_type} instead of {wanted.kv_type}"
        lines.append(Reason("kv_quantised", text))
    if taken.cpu_moe > wanted.cpu_moe and taken.gpu_layers:
        lines.append(Reason("experts_in_ram", "so experts went to RAM: slower, but no layer is lost"))
    own = min(CHAT_CTX, wanted.ctx)
    if taken.ctx < own:
        lines.append(Reason("context_cut", f"so a request has {taken.ctx} tokens instead of {own}"))
    elif (taken.parallel, taken.ctx) != (wanted.parallel, wanted.ctx):
        text = (
            f"so there are {taken.parallel} x {taken.ctx} tokens instead of {wanted.parallel} x {wanted.ctx}"
        )
        lines.append(Reason("fewer_slots", text))
    if taken.gpu_layers < wanted.gpu_layers:
        lines.append(Reason("fewer_layers", "so not all layers are on the GPU"))
    if {"context_cut", "fewer_layers"} <= {line.code for line in lines}:
        text = f"layers count more than context: `--ctx {own}` keeps the context and gives up layers instead"
        if not taken.gpu_layers:
            text = "no layer fits there: `--gpu-layers 0` plans as if there were no GPU, with more context"
        lines.append(Reason("context_first", text))
    return lines


def _differs(wanted: Candidate, taken: Candidate) -> bool:
    def numbers(one: Candidate) -> tuple[object, ...]:
        return one.gpu_layers, one.ctx, one.parallel, one.kv_type, one.n_ubatch, one.cpu_moe, one.mmproj

    return numbers(wanted) != numbers(taken)


def _words(estimator: Estimator, candidate: Candidate) -> str:
    layers = f"{candidate.gpu_layers} layers, " if estimator.devices else ""
    return f"{layers}{candidate.parallel} x {candidate.ctx} tokens and {candidate.kv_type},"


def lack(estimator: Estimator, wanted: Candidate) -> str:
    """The first place where a candidate does not fit, in words."""
    estimate = estimator.estimate(wanted)
    if estimate.refused is not None:
        index, n_bytes = estimate.refused
        device = estimator.devices[index]
        return (
            f"the cache of a layer would be one piece of {mib_text(n_bytes)}, and {device.name} takes "
            f"{mib_text(device.max_tensor or 0)}"
        )
    for index, used in enumerate(estimate.devices):
        room = room_of(estimator, index)
        if room is not None and used.total > max(room, 0):
            name = estimator.devices[index].name
            return (
                f"{name} would need {mib_text(used.total)} of the {mib_text(max(room, 0))} that may be used"
            )
    room = host_room(estimator)
    if room is not None:
        need = mib_text(estimate.host.total)
        return f"{RAM} would need {need} of the {mib_text(max(room, 0))} that may be used"
    return "it would not fit"


def asked_lines(estimator: Estimator) -> list[Reason]:
    """Notes on what was asked for and can't be as it was meant: layers, or experts in RAM."""
    asked, lines = estimator.request.gpu_layers, []
    if estimator.request.cpu_moe and not estimator.moe_blocks:
        lines.append(Reason("no_experts", "the model has no experts that could stay in RAM"))
    if asked and not estimator.devices:
        text = f"{asked} layers were asked for, and the engine sees no device to use"
        lines.append(Reason("layers_ignored", text))
    elif asked and asked > (taken := clamp_layers(estimator, asked)):
        text = f"{asked} layers were asked for; the model has {taken} with its output head"
        lines.append(Reason("layers_clamped", text))
    return lines


def speed_lines(speed: Speed | None) -> list[Reason]:
    """The estimate of the decode speed; `~` as long as it was not seen here."""
    if speed is None:
        return []
    how = {
        "seen": "from speeds seen here",
        "table": "from the memory bandwidth on its data sheet",
        "rule": "by a rule of thumb for RAM",
    }[speed.how]
    full = f"~{speed.decode_full:.3g} with its context full"
    return [Reason("speed", f"~{speed.decode:.3g} tokens/s for one request, {full} ({how})")]
