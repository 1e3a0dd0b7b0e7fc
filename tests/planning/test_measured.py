"""The engine's own figures take the place of computed ones."""

from __future__ import annotations

from appliance.planning import MeasuredRow, apply_measurement
from tests.planning.machines import GIB, MIB, codes, gpu, llama_like, plan

MODEL = llama_like()
ROWS = {
    "CUDA0": MeasuredRow(4_500 * MIB, 1_200 * MIB, 300 * MIB),
    "Host": MeasuredRow(350 * MIB, 0, 40 * MIB),
}


def test_figures_spare_and_lines_follow_the_engine() -> None:
    computed = plan(MODEL, gpu(12 * GIB), ctx=8_192, parallel=1)
    found = apply_measurement(computed, ROWS)
    device = found.devices[0]

    assert found.measured
    assert found.fits
    assert (device.model, device.kv, device.compute) == (4_500 * MIB, 1_200 * MIB, 300 * MIB)
    assert device.spare == 12 * GIB - 512 * MIB - 6_000 * MIB - device.overhead
    assert device.overhead == computed.devices[0].overhead
    texts = [r.text for r in found.reasons]
    assert "compute buffer on CUDA0 300 MiB (measured by the engine)" in texts
    assert not any("(computed)" in text for text in texts)
    assert codes(found).count("spare") == 2


def test_a_measurement_may_show_that_it_does_not_fit() -> None:
    computed = plan(MODEL, gpu(12 * GIB), ctx=8_192, parallel=1)
    found = apply_measurement(computed, {**ROWS, "CUDA0": MeasuredRow(4_500 * MIB, 1_200 * MIB, 7_000 * MIB)})

    assert computed.fits
    assert not found.fits
    assert "short" in codes(found)
    assert any("needs 1274 MiB more on CUDA0" in r.text for r in found.reasons)


def test_a_measurement_may_show_that_it_fits_after_all() -> None:
    computed = plan(MODEL, gpu(6 * GIB), ctx=8_192, parallel=2, gpu_layers=33, kv_type="f16")
    small = MeasuredRow(4_000 * MIB, 1_000 * MIB, 100 * MIB)
    found = apply_measurement(computed, {**ROWS, "CUDA0": small})

    assert not computed.fits
    assert found.fits
    assert not {"does_not_fit", "would_fit"} & set(codes(found))


def test_repacked_weights_are_ram() -> None:
    computed = plan(MODEL, ctx=4_096, parallel=1)
    rows = {"Host": MeasuredRow(1_000 * MIB, 10 * MIB, 5 * MIB), "CPU_REPACK": MeasuredRow(3_000 * MIB, 0, 0)}
    found = apply_measurement(computed, rows)

    assert found.host.model == 4_000 * MIB
    assert found.measured


def test_a_device_without_a_row_keeps_its_figures() -> None:
    computed = plan(MODEL, gpu(12 * GIB))
    found = apply_measurement(computed, {"Host": ROWS["Host"]})

    assert found.devices == computed.devices
    assert not found.measured


def test_nothing_measured_changes_nothing() -> None:
    computed = plan(MODEL, gpu(12 * GIB))

    assert apply_measurement(computed, {}) is computed


def test_shared_memory_stays_counted_in_ram() -> None:
    inside = gpu(20 * GIB, name="Vulkan0", backend="vulkan", integrated=True)
    computed = plan(MODEL, inside, ctx=4_096, parallel=1)
    found = apply_measurement(computed, {"Vulkan0": ROWS["CUDA0"], "Host": ROWS["Host"]})

    assert (
        found.host.overhead - found.devices[0].needed == computed.host.overhead - computed.devices[0].needed
    )
