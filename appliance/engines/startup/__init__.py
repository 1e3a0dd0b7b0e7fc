"""From a file on a disk to weights in memory, as fast as the machine allows. See README.md."""

from appliance.engines.startup.disks import Disk, disk_of, smoothed
from appliance.engines.startup.page_cache import Cached, cached
from appliance.engines.startup.preheat import Preheat, Report
from appliance.engines.startup.rule import Ahead, ModeChoice, may_preheat, mode_for, where_of
from appliance.engines.startup.spare_ram import spare_ram

__all__ = [
    "Ahead",
    "Cached",
    "Disk",
    "ModeChoice",
    "Preheat",
    "Report",
    "cached",
    "disk_of",
    "may_preheat",
    "mode_for",
    "smoothed",
    "spare_ram",
    "where_of",
]
