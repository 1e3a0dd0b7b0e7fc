"""The lines of why. Figures are whole MiB, and those of one device add up as printed."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.planning.cache import quantised
from appliance.planning.estimate import Candidate, Estimator, is_shared
from appliance.planning.result import MemoryPlan, Reason
from appliance.planning.search import MIN_CTX, Choice, clamp_layers, smallest_change
from appliance.planning.values import DeviceMemory
from appliance.units import MIB, size

MEMORY_CODES = frozenset(
    {"free", "reserve", "weights", "kv", "compute", "overhead", "spare", "short", "fits"}
)
"""Codes of the lines that a measurement replaces."""
HOST = "RAM"


def model_lines(estimator: Estimator) -> list[Reason]:
    """What the header says."""
    shape, total = estimator.shape, estimator.weights.total
    trained = f"trained for {shape.n_ctx_train} tokens" if shape.n_ctx_train else "trained context unknown"
    lines = [
        Reason("model", f"{shape.arch}: {shape.n_layer} layers, weights {size(total)}, {trained}", total)
    ]
    if not shape.known:
        lines.append(
            Reason(
                "unknown_arch",
                f"architecture {shape.arch} is not known here: each layer counts with a full-context cache",
            )
        )
    return lines


def device_lines(estimator: Estimator, listed: Sequence[DeviceMemory]) -> list[Reason]:
    """Why devices are used or left out."""
    used = {d.name for d in estimator.devices}
    lines: list[Reason] = []
    if not listed:
        lines.append(Reason("no_gpu", "the engine sees no GPU: everything runs on the CPU"))
    for device in listed:
        if device.name in used:
            lines.extend(_used_lines(device))
        else:
            lines.append(
                Reason("device_unused", f"{device.name} ({device.description}) is not used: {_why(device)}")
            )
    return lines


def _used_lines(device: DeviceMemory) -> list[Reason]:
    lines = []
    if device.free is None:
        lines.append(
            Reason(
                "free_unknown", f"free memory on {device.name} is unknown: the asked layers are taken to fit"
            )
        )
    if is_shared(device):
        lines.append(
            Reason("shared", f"{device.name} shares the machine's RAM, so what it takes counts there, too")
        )
    if device.software:
        lines.append(
            Reason("software", f"{device.name} is made of the CPU: slow, used since layers were asked for")
        )
    return lines


def _why(device: DeviceMemory) -> str:
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
    lines = [
        Reason(
            "context",
            f"{taken.parallel} x {taken.ctx} tokens (slots x context), KV cache {taken.kv_type} ({asked})",
        )
    ]
    if request.ctx and request.ctx != taken.ctx:
        lines.append(
            Reason(
                "padded", f"the asked {request.ctx} tokens are rounded up to {taken.ctx}, as the engine does"
            )
        )
    trained = estimator.shape.n_ctx_train
    if trained and request.ctx and request.ctx > trained:
        lines.append(
            Reason(
                "beyond_trained", f"{request.ctx} tokens were asked for; the model was trained for {trained}"
            )
        )
    if estimator.in_process_server:
        lines.append(Reason("single_request", "this engine works on one request at a time"))
    lines.append(_layer_line(estimator, taken))
    return [*lines, *_given_up(estimator, choice)]


def _layer_line(estimator: Estimator, taken: Candidate) -> Reason:
    count, everything = taken.gpu_layers, estimator.all_layers
    word = "asked" if estimator.request.gpu_layers is not None else "chosen"
    if not estimator.devices or count == 0:
        return Reason("layers", f"0 of {everything} layers on a GPU: the CPU does the work")
    names = " and ".join(d.name for d in estimator.devices)
    if count >= everything:
        return Reason("layers", f"all {everything} layers on {names}, output head included ({word})")
    return Reason(
        "layers", f"{count} of {everything} layers on {names}, output head first ({word}); the rest in RAM"
    )


def _given_up(estimator: Estimator, choice: Choice) -> list[Reason]:
    wanted, taken = choice.wanted, choice.candidate
    lines: list[Reason] = []
    if wanted != taken and choice.fits:
        lines.append(Reason("tight", f"with {_words(estimator, wanted)} {_lack(estimator, wanted)}"))
    if quantised(taken.kv_type) and not quantised(wanted.kv_type):
        lines.append(
            Reason(
                "kv_quantised",
                f"so the KV cache is {taken.kv_type} instead of {wanted.kv_type}",
            )
        )
    own = min(MIN_CTX * 2, wanted.ctx)
    if taken.ctx < own:
        lines.append(Reason("context_cut", f"so a request has {taken.ctx} tokens instead of {own}"))
    if taken.gpu_layers < wanted.gpu_layers:
        lines.append(Reason("fewer_layers", "so not all layers are on the GPU"))
    return lines


def _words(estimator: Estimator, candidate: Candidate) -> str:
    layers = f"{candidate.gpu_layers} layers, " if estimator.devices else ""
    return f"{layers}{candidate.parallel} x {candidate.ctx} tokens and {candidate.kv_type}"


def _lack(estimator: Estimator, wanted: Candidate) -> str:
    """The first place where the wanted candidate does not fit, in words."""
    estimate, reserve = estimator.estimate(wanted), estimator.request.reserve
    for device, used in zip(estimator.devices, estimate.devices, strict=True):
        if device.free is not None and used.total and used.total > device.free - reserve:
            may = max(device.free - reserve, 0)
            return f"{device.name} would need {mib_text(used.total)} of the {mib_text(may)} that may be used"
    if estimator.host.available is not None:
        may = max(estimator.host.available - reserve, 0)
        return f"{HOST} would need {mib_text(estimate.host.total)} of the {mib_text(may)} that may be used"
    return "it would not fit"


def memory_lines(plan: MemoryPlan, *, host: bool, measured: bool) -> list[Reason]:
    """The account of one device: free minus all that is taken is what is left."""
    name, how = (HOST if host else plan.name), ("measured by the engine" if measured else "computed")
    source = "system" if host else "driver"
    exact = how if measured else "exact, from the header"
    lines = [Reason("reserve", f"kept free on {name} {mib_text(plan.reserve)} (reserve)", plan.reserve)]
    if plan.free is not None:
        lines.insert(0, Reason("free", f"free on {name} now {mib_text(plan.free)} ({source})", plan.free))
    taken = [
        Reason("weights", f"weights on {name} {mib_text(plan.model)} ({exact})", plan.model),
        Reason("kv", f"KV cache on {name} {mib_text(plan.kv)} ({exact})", plan.kv),
        Reason("compute", f"compute buffer on {name} {mib_text(plan.compute)} ({how})", plan.compute),
        Reason("overhead", f"{_overhead(host)} on {name} {mib_text(plan.overhead)} (typical)", plan.overhead),
    ]
    lines += [line for line in taken if line.n_bytes]
    if plan.free is not None and plan.spare is not None:
        shown = round(plan.free / MIB) - sum(round((r.n_bytes or 0) / MIB) for r in lines[1:])
        if plan.spare >= 0:
            lines.append(Reason("spare", f"left on {name} {shown} MiB", plan.spare))
        else:
            lines.append(Reason("short", f"missing on {name} {-shown} MiB", plan.spare))
    return lines


def _overhead(host: bool) -> str:
    return "engine process and shared memory" if host else "driver"


def verdict_lines(estimator: Estimator, choice: Choice) -> list[Reason]:
    """For a plan that does not fit: what is needed, what is here, and the smallest change."""
    if choice.fits:
        return []
    lines = [Reason("does_not_fit", f"does not fit: {_lack(estimator, choice.candidate)}")]
    change = smallest_change(estimator, choice.candidate)
    if change:
        lines.append(Reason("would_fit", f"the smallest change that would fit: {change}"))
    else:
        lines.append(Reason("would_fit", "no single option makes it fit: take a smaller model or quant"))
    return lines


def asked_layers_line(estimator: Estimator) -> list[Reason]:
    """A note when more layers were asked for than there are, or layers without a device."""
    asked = estimator.request.gpu_layers
    if not asked:
        return []
    if not estimator.devices:
        return [
            Reason("layers_ignored", f"{asked} layers were asked for, and the engine sees no device to use")
        ]
    taken = clamp_layers(estimator, asked)
    if asked > taken:
        return [
            Reason(
                "layers_clamped", f"{asked} layers were asked for; the model has {taken} with its output head"
            )
        ]
    return []


def mib_text(n_bytes: int) -> str:
    """Whole MiB."""
    return f"{round(n_bytes / MIB)} MiB"
