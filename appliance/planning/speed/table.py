"""Peak memory bandwidth of graphics processors in GB/s (10^9 bytes), from their makers' data sheets.

Keys are names as `bandwidth.py` writes them: small letters, without the maker's name. Where a name stands for
cards of several bandwidths the lowest is given. Processors with graphics use the RAM of the machine: the
figure is for two channels of the memory that is usual beside them.
"""

from __future__ import annotations

VARIANTS = frozenset({
    "ti", "super", "laptop", "mobile", "maxq", "d", "m", "xt", "xtx", "gre", "le", "pro", "max", "ultra",
    "plus", "ada", "blackwell", "quadro", "sff", "titan", "mig", "grid", "vgpu", "paravirtual",
})  # fmt: skip
"""Words that make another card of a name. One that is not part of the key means: not in the table."""

_NVIDIA_DESKTOP: dict[str, float] = {
    "rtx 5090": 1792, "rtx 5090 d": 1792, "rtx 5080": 960, "rtx 5070 ti": 896, "rtx 5070": 672,
    "rtx 5060 ti": 448, "rtx 5060": 448, "rtx 5050": 320,
    "rtx 4090": 1008, "rtx 4090 d": 1008, "rtx 4080 super": 736, "rtx 4080": 717, "rtx 4070 ti super": 672,
    "rtx 4070 ti": 504, "rtx 4070 super": 504, "rtx 4070": 480, "rtx 4060 ti": 288, "rtx 4060": 272,
    "rtx 3090 ti": 1008, "rtx 3090": 936, "rtx 3080 ti": 912, "rtx 3080": 760, "rtx 3070 ti": 608,
    "rtx 3070": 448, "rtx 3060 ti": 448, "rtx 3060": 360, "rtx 3060 8gb": 240, "rtx 3050": 224,
    "rtx 3050 6gb": 168,
    "rtx 2080 ti": 616, "rtx 2080 super": 496, "rtx 2080": 448, "rtx 2070 super": 448, "rtx 2070": 448,
    "rtx 2060 super": 448, "rtx 2060": 336, "titan rtx": 672, "titan v": 652, "titan xp": 547,
    "titan x pascal": 480,
    "gtx 1660 ti": 288, "gtx 1660 super": 336, "gtx 1660": 192, "gtx 1650 super": 192, "gtx 1650": 128,
    "gtx 1630": 96,
    "gtx 1080 ti": 484, "gtx 1080": 320, "gtx 1070 ti": 256, "gtx 1070": 256, "gtx 1060": 192,
    "gtx 1060 3gb": 192, "gtx 1060 6gb": 192, "gtx 1050 ti": 112, "gtx 1050": 112,
}  # fmt: skip
_NVIDIA_LAPTOP: dict[str, float] = {
    "rtx 5090 laptop": 896, "rtx 5080 laptop": 896, "rtx 5070 ti laptop": 672, "rtx 5070 laptop": 384,
    "rtx 5060 laptop": 384, "rtx 5050 laptop": 384,
    "rtx 4090 laptop": 576, "rtx 4080 laptop": 432, "rtx 4070 laptop": 256, "rtx 4060 laptop": 256,
    "rtx 4050 laptop": 192,
    "rtx 3080 ti laptop": 512, "rtx 3080 laptop": 448, "rtx 3070 ti laptop": 448, "rtx 3070 laptop": 448,
    "rtx 3060 laptop": 336, "rtx 3050 ti laptop": 192, "rtx 3050 laptop": 192, "rtx 3050 6gb laptop": 168,
    "rtx 2080 super maxq": 352, "rtx 2080 maxq": 384, "rtx 2070 super maxq": 352, "rtx 2070 maxq": 384,
    "rtx 2060 maxq": 264, "gtx 1660 ti maxq": 288, "gtx 1650 ti": 192, "gtx 1650 maxq": 112,
    "gtx 1080 maxq": 320, "gtx 1070 maxq": 256, "gtx 1060 maxq": 192, "mx450": 64, "mx350": 56, "mx250": 48,
    "mx150": 40, "mx550": 96, "mx570": 96,
}  # fmt: skip
_NVIDIA_PRO: dict[str, float] = {
    "rtx pro 6000 blackwell": 1792, "rtx pro 6000 blackwell workstation": 1792,
    "rtx pro 6000 blackwell maxq workstation": 1792, "rtx pro 6000 blackwell server": 1597,
    "rtx pro 5000 blackwell": 1344, "rtx pro 4500 blackwell": 896, "rtx pro 4000 blackwell": 672,
    "rtx pro 4000 blackwell sff": 432, "rtx pro 2000 blackwell": 288,
    "rtx 6000 ada": 960, "rtx 5880 ada": 960, "rtx 5000 ada": 576, "rtx 4500 ada": 432, "rtx 4000 ada": 360,
    "rtx 4000 sff ada": 280, "rtx 2000 ada": 224,
    "rtx 5000 ada laptop": 576, "rtx 4000 ada laptop": 432, "rtx 3500 ada laptop": 432,
    "rtx 3000 ada laptop": 256, "rtx 2000 ada laptop": 256, "rtx 1000 ada laptop": 192,
    "rtx 500 ada laptop": 128,
    "rtx a6000": 768, "rtx a5500": 768, "rtx a5000": 768, "rtx a4500": 640, "rtx a4000": 448,
    "rtx a2000": 288, "rtx a2000 12gb": 288, "rtx a1000": 192, "rtx a400": 96,
    "rtx a5000 laptop": 448, "rtx a4000 laptop": 384, "rtx a3000 laptop": 264, "rtx a2000 laptop": 192,
    "rtx a1000 laptop": 192,
    "quadro rtx 8000": 672, "quadro rtx 6000": 672, "quadro rtx 5000": 448, "quadro rtx 4000": 416,
    "quadro rtx 3000": 448, "quadro p6000": 432, "quadro p5000": 288, "quadro p4000": 243,
    "quadro p2000": 140, "quadro gv100": 870, "t1000": 160, "t600": 160, "t400": 80,
}  # fmt: skip
_NVIDIA_SERVER: dict[str, float] = {
    "gb200": 8000, "b200": 8000, "gh200 480gb": 4000, "h200": 4800, "h200 nvl": 4800, "h100 80gb hbm3": 3350,
    "h100 nvl": 3938, "h100 pcie": 2039, "h20": 4000, "h800 pcie": 2039,
    "a100 sxm4 80gb": 2039, "a100 80gb pcie": 1935, "a100 sxm4 40gb": 1555, "a100 pcie 40gb": 1555,
    "a40": 696, "a30": 933, "a16": 200, "a10": 600, "a10g": 600, "a2": 200, "l40s": 864, "l40": 864,
    "l20": 864, "l4": 300,
    "tesla t4": 320, "t4": 320, "tesla v100 sxm2 32gb": 900, "tesla v100 sxm2 16gb": 900,
    "tesla v100 pcie 16gb": 900, "tesla v100 pcie 32gb": 900, "tesla p100 pcie 16gb": 732,
    "tesla p100 sxm2 16gb": 732, "tesla p100 pcie 12gb": 549, "tesla p40": 346, "tesla p4": 192,
    "tesla m40": 288, "tesla m40 24gb": 288, "tesla k80": 240, "gb10": 273, "thor": 273, "orin": 102,
}  # fmt: skip
_AMD: dict[str, float] = {
    "rx 9070 xt": 640, "rx 9070": 640, "rx 9070 gre": 432, "rx 9060 xt": 320, "rx 9060": 288,
    "rx 7900 xtx": 960, "rx 7900 xt": 800, "rx 7900 gre": 576, "rx 7900m": 576, "rx 7800 xt": 624,
    "rx 7700 xt": 432, "rx 7700": 624, "rx 7600 xt": 288, "rx 7600": 288, "rx 7600m xt": 288,
    "rx 7600m": 256, "rx 7600s": 256, "rx 7700s": 288, "rx 7650 gre": 288,
    "rx 6950 xt": 576, "rx 6900 xt": 512, "rx 6800 xt": 512, "rx 6800": 512, "rx 6850m xt": 432,
    "rx 6800m": 384, "rx 6800s": 256, "rx 6750 xt": 432, "rx 6750 gre": 288, "rx 6700 xt": 384,
    "rx 6700": 320, "rx 6700m": 320, "rx 6700s": 224, "rx 6650 xt": 280, "rx 6600 xt": 256, "rx 6600": 224,
    "rx 6600m": 224, "rx 6500 xt": 144, "rx 6500m": 144, "rx 6400": 128,
    "rx 5700 xt": 448, "rx 5700": 448, "rx 5600 xt": 288, "rx 5500 xt": 224, "rx 5500m": 224,
    "vii": 1024, "rx vega 64": 484, "rx vega 56": 410, "rx vega": 410, "rx 590": 256, "rx 580": 256,
    "rx 570": 224, "rx 480": 224,
    "ai pro r9700": 640, "pro w7900": 864, "pro w7800": 576, "pro w7800 48gb": 864, "pro w7700": 576,
    "pro w7600": 288, "pro w7500": 172, "pro w6800": 512, "pro w6600": 224, "pro w6400": 128,
    "pro w5700": 448, "pro w5500": 224, "pro vii": 1024, "pro 5300m": 192, "pro 5500m": 192,
    "pro 5600m": 394, "pro v620": 512, "pro v520": 512,
    "instinct mi355x": 8000, "instinct mi350x": 8000, "instinct mi325x": 6000, "instinct mi300x": 5300,
    "instinct mi300a": 5300, "instinct mi250x": 3277, "instinct mi250": 3277, "instinct mi210": 1638,
    "instinct mi100": 1229, "instinct mi60": 1024, "instinct mi50": 1024, "mi60": 1024, "mi50": 1024,
    "mi25": 484,
}  # fmt: skip
_AMD_WITH_CPU: dict[str, float] = {
    "8060s": 256, "8050s": 256, "strix halo": 256, "gfx1151": 256, "890m": 90, "880m": 90, "strix1": 90,
    "gfx1150": 90, "860m": 90, "840m": 90, "krackan1": 90, "780m": 83, "760m": 83, "740m": 83,
    "phoenix": 83, "phoenix2": 83, "680m": 77, "660m": 77, "rembrandt": 77, "610m": 77, "raphael": 77,
    "mendocino": 77, "vangogh": 88, "renoir": 51, "lucienne": 51, "cezanne": 51, "barcelo": 51,
    "picasso": 38, "raven": 38, "raven2": 38,
}  # fmt: skip
_INTEL: dict[str, float] = {
    "arc b580": 456, "arc b570": 380, "arc pro b70": 608, "arc pro b65": 608, "arc pro b60": 456,
    "arc pro b50": 224, "arc a770": 512, "arc a750": 512, "arc a580": 512, "arc a380": 186, "arc a310": 124,
    "arc a770m": 512, "arc a730m": 336, "arc a570m": 256, "arc a550m": 224, "arc a530m": 224,
    "arc a370m": 112, "arc a350m": 112, "arc pro a60": 384, "arc pro a50": 192, "arc pro a40": 192,
    "data center max 1550": 3277, "data center max 1100": 1229, "data center flex 170": 576,
    "data center flex 140": 186,
    "arc 140v": 136, "arc 130v": 136, "lnl": 136, "arc 140t": 90, "arc 130t": 90, "arl": 90, "mtl": 90,
    "iris xe": 51, "tgl gt2": 51, "adl gt2": 51, "rpl p": 51, "uhd 770": 51, "uhd 750": 51, "uhd 730": 51,
    "uhd 630": 41, "uhd 620": 38, "iris plus": 51,
}  # fmt: skip
_APPLE: dict[str, float] = {
    "m1": 68, "m1 pro": 200, "m1 max": 400, "m1 ultra": 800,
    "m2": 100, "m2 pro": 200, "m2 max": 400, "m2 ultra": 800,
    "m3": 100, "m3 pro": 150, "m3 max": 300, "m3 ultra": 819,
    "m4": 120, "m4 pro": 273, "m4 max": 410, "m5": 153, "m5 pro": 307, "m5 max": 460,
}  # fmt: skip

GB_PER_S: dict[str, float] = {
    **_NVIDIA_DESKTOP, **_NVIDIA_LAPTOP, **_NVIDIA_PRO, **_NVIDIA_SERVER,
    **_AMD, **_AMD_WITH_CPU, **_INTEL, **_APPLE,
}  # fmt: skip
