"""What feeds the machine, from folders like /sys/class/power_supply."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.hardware import host
from appliance.hardware.sysfs import Roots
from appliance.hardware.types import Battery
from tests.hardware.folders import files


def supply(roots: Roots, name: str, **contents: object) -> Path:
    return files(roots.sys / "class" / "power_supply" / name, **contents)


def battery(roots: Roots) -> Battery | None:
    return host.battery(roots, linux=True)


def test_a_laptop_on_mains_and_on_battery(roots: Roots) -> None:
    mains = supply(roots, "ADP1", type="Mains", online=1)
    supply(roots, "BAT0", type="Battery", status="Charging", capacity=83, present=1)
    assert battery(roots) == Battery(83.0, True)
    files(mains, online=0)
    supply(roots, "BAT0", status="Discharging")
    assert battery(roots) == Battery(83.0, False)


def test_two_batteries_are_one_by_their_energy(roots: Roots) -> None:
    supply(roots, "BAT0", type="Battery", status="Unknown", energy_now=20, energy_full=20, capacity=100)
    supply(roots, "BAT1", type="Battery", status="Discharging", energy_now=10, energy_full=60, capacity=16)
    assert battery(roots) == Battery(37.5, False)


def test_two_batteries_without_energy_give_the_mean_of_what_they_say(roots: Roots) -> None:
    supply(roots, "BAT0", type="Battery", status="Full", charge_now=50, charge_full=100, capacity=50)
    supply(roots, "BAT1", type="Battery", status="Not charging", capacity=100)
    assert battery(roots) == Battery(75.0, True)


def test_an_unknown_status_without_an_adapter_is_an_unknown_source(roots: Roots) -> None:
    supply(roots, "BAT0", type="Battery", status="Unknown", capacity=60)
    assert battery(roots) == Battery(60.0, None)


def test_a_weak_charger_feeds_though_the_battery_discharges(roots: Roots) -> None:
    supply(roots, "ucsi-source-psy-USBC000:001", type="USB", online=1)
    supply(roots, "BAT0", type="Battery", status="Discharging", capacity=40)
    assert battery(roots) == Battery(40.0, True)


def test_a_battery_that_charges_is_fed_whatever_the_adapter_says(roots: Roots) -> None:
    supply(roots, "AC", type="Mains", online=0)
    supply(roots, "BAT0", type="Battery", status="Charging", capacity=40)
    assert battery(roots) == Battery(40.0, True)


def test_an_adapter_without_a_battery_is_told(roots: Roots) -> None:
    supply(roots, "ACAD", type="Mains", online=1)
    assert battery(roots) == Battery(None, True)


def test_an_adapter_that_is_off_without_a_battery_is_an_unknown_source(roots: Roots) -> None:
    supply(roots, "ACAD", type="Mains", online=0)
    assert battery(roots) == Battery(None, None)


def test_the_empty_usb_ports_of_a_desktop_are_no_power_source(roots: Roots) -> None:
    supply(roots, "ucsi-source-psy-USBC000:001", type="USB", online=0)
    assert battery(roots) is None


def test_a_mouse_does_not_feed_the_machine(roots: Roots) -> None:
    supply(roots, "hidpp_battery_0", type="Battery", scope="Device", status="Discharging", capacity=5)
    assert battery(roots) is None


def test_an_empty_bay_is_no_battery(roots: Roots) -> None:
    supply(roots, "BAT1", type="Battery", present=0, status="Unknown")
    assert battery(roots) is None


@pytest.mark.parametrize("capacity", ["", "-1", "250", "garbage"])
def test_a_charge_that_makes_no_sense_is_unknown(roots: Roots, capacity: str) -> None:
    supply(roots, "BAT0", type="Battery", status="Discharging", capacity=capacity)
    assert battery(roots) == Battery(None, False)


@pytest.mark.parametrize(
    ("now", "full"), [(-60, 80), (-(2**62), 80), (400, 80), (5 * 10**17, 10**18), (10, -60), (10, 0)]
)
def test_a_battery_of_nonsense_is_left_out(roots: Roots, now: int, full: int) -> None:
    supply(roots, "BAT0", type="Battery", status="Discharging", energy_now=60, energy_full=80)
    supply(roots, "BAT1", type="Battery", status="Unknown", energy_now=now, energy_full=full)
    assert battery(roots) == Battery(75.0, False)


@pytest.mark.parametrize("now", [-5, 900])
def test_the_share_counts_where_the_energy_is_nonsense(roots: Roots, now: int) -> None:
    supply(roots, "BAT0", type="Battery", status="Discharging", energy_now=now, energy_full=80, capacity=64)
    assert battery(roots) == Battery(64.0, False)


def test_a_share_of_nonsense_is_left_out_of_the_mean(roots: Roots) -> None:
    supply(roots, "BAT0", type="Battery", status="Discharging", capacity=40)
    supply(roots, "BAT1", type="Battery", status="Unknown", capacity=-30)
    assert battery(roots) == Battery(40.0, False)


@pytest.mark.parametrize(("online", "plugged"), [(2, True), (-1, None), (3, None), (255, None)])
def test_what_an_adapter_says_counts_only_where_it_means_something(
    roots: Roots, online: int, plugged: bool | None
) -> None:
    supply(roots, "USB0", type="USB", online=online)
    supply(roots, "BAT0", type="Battery", status="Unknown", capacity=50)
    assert battery(roots) == Battery(50.0, plugged)


def test_a_new_battery_holds_a_little_more_than_full(roots: Roots) -> None:
    supply(roots, "BAT0", type="Battery", status="Full", energy_now=103, energy_full=100)
    assert battery(roots) == Battery(100.0, True)


def test_no_supplies_are_none(roots: Roots) -> None:
    assert battery(roots) is None
