"""What the formulas say about a row of a public log, beside what the log says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.gguf import shape_of
from appliance.planning import DeviceMemory, kv_bytes, state_bytes
from appliance.planning.memory.compute import ComputeModel
from appliance.planning.memory.placement import Placement, place
from appliance.planning.memory.weights import weights_of
from tests.planning import truth
from tests.planning.truth import MIB, Row
from tests.planning.truth_header import with_tensors

What = Literal["kv", "rs", "compute"]
Group = Literal["exact", "bounded"]


@dataclass(frozen=True, slots=True)
class Checked:
    """One figure of one row, in MiB."""

    row: Row
    what: What
    logged: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative: 0.1 = a tenth too much."""
        return self.predicted / self.logged - 1


def checks(row: Row) -> list[Checked]:
    """All figures that the row can test."""
    shape, load = truth.shape(row), truth.load(row)
    found: list[Checked] = []
    if "kv" in row["checks"]:
        found.append(Checked(row, "kv", truth.logged(row, "kv_mib"), kv_bytes(shape, load) / MIB))
    if "rs" in row["checks"]:
        copies = 1 + (row["extra"].get("n_rs_seq") or 0)  # speculative decoding keeps further states
        state = copies * state_bytes(shape, load) / MIB
        found.append(Checked(row, "rs", truth.logged(row, "rs_mib"), state))
    if "compute" in row["checks"]:
        logged = truth.largest_device(row, "compute_mib")
        assert logged is not None
        found.append(Checked(row, "compute", logged, compute(row)))
    return [check for check in found if check.logged]


def group_of(row: Row) -> Group:
    """Which promise the row's compute buffer is under."""
    alone = row["placement"] == "full" and not row["multi_gpu"] and not row["experts_on_cpu"]
    return "exact" if alone else "bounded"


def compute(row: Row) -> float:
    """The largest compute buffer of a device, or that of a run without one (MiB)."""
    names = devices(row)
    if not names:
        model = _model(row)
        return model.of(truth.load(row), Placement((None,) * model.shape.n_layer, None), ()).host / MIB
    return max(compute_of(row, index) for index in range(len(names)))


def compute_of(row: Row, index: int) -> float:
    """The compute buffer of one device (MiB)."""
    model = _model(row)
    memory = [DeviceMemory(name, name, _backend(row), None, None) for name in devices(row)]
    return model.device(index, truth.load(row), _placement(row, len(memory)), memory[index]) / MIB


def devices(row: Row) -> list[str]:
    """The row's devices that have a compute buffer, in order."""
    return [name for name in row["device_buffers"] if not truth.is_host(name) and _works(row, name)]


def _works(row: Row, name: str) -> bool:
    return not name.endswith("_Mapped") and bool(set(row["device_buffers"][name]) - {"model_mib"})


def _model(row: Row) -> ComputeModel:
    header = with_tensors(row, truth.metadata(row))
    shape = shape_of(header)
    return ComputeModel(shape, weights_of(header, shape), row["era"] or "old")


def _backend(row: Row) -> str:
    return str(row["backend"] or "").split()[0].strip(":").lower() if row["backend"] else ""


def _placement(row: Row, n_devices: int) -> Placement:
    n_layer = truth.shape(row).n_layer
    on_gpu = {"full": n_layer + 1, "none": 0}.get(row["placement"])
    if on_gpu is None:
        said = row["offloaded"] or str(row["ngl"])
        on_gpu = int(said.split("/")[0])
    if not on_gpu:
        return Placement((None,) * n_layer, None, 0, n_devices)
    return place(n_layer, on_gpu, [1] * n_devices, n_layer if row["experts_on_cpu"] else 0)
