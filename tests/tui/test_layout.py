"""Panel heights fill the screen at every size, and the least important panel goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui.layout import MIN_REQUESTS, ROWS_AROUND, PanelId, heights

WANTS: dict[PanelId, int] = {"engine": 8, "gpu": 6, "host": 4, "downloads": 4, "notes": 4}


@given(
    st.integers(16, 200),
    st.fixed_dictionaries(
        {name: st.integers(0, 40) for name in ("engine", "others", "gpu", "host", "downloads", "notes")}
    ),
)
def test_heights_add_up_at_every_size(total: int, wants: dict[PanelId, int]) -> None:
    rows = heights(total, wants)
    assert sum(rows.values()) == total - ROWS_AROUND
    assert rows["requests"] >= MIN_REQUESTS
    assert all(0 <= rows[name] <= wants[name] for name in wants)
    assert all(
        rows[name] == 0 or rows[name] >= min(3, wants[name])
        for name in ("others", "gpu", "host", "downloads", "notes")
    )


def test_with_room_everything_is_shown_whole() -> None:
    assert heights(40, WANTS) == WANTS | {"requests": 11}


def test_hints_shrink_and_go_before_panels() -> None:
    assert heights(32, WANTS) == WANTS | {"notes": 3, "requests": 4}
    assert heights(31, WANTS) == WANTS | {"notes": 3, "downloads": 3, "requests": 4}
    assert heights(29, WANTS) == WANTS | {"notes": 0, "downloads": 3, "requests": 5}
    tight = heights(24, WANTS)
    assert (tight["host"], tight["notes"], tight["gpu"]) == (0, 0, 6)
    assert heights(16, WANTS) == {"engine": 8, "gpu": 0, "host": 0, "downloads": 0, "notes": 0, "requests": 5}


def test_other_models_stay_when_downloads_and_sensors_go() -> None:
    rows = heights(24, WANTS | {"others": 5})
    assert (rows["others"], rows["gpu"], rows["downloads"]) == (5, 0, 3)
    assert heights(20, WANTS | {"others": 5})["others"] == 5
    assert heights(19, WANTS | {"others": 5})["others"] == 0
