"""What was asked for, and what the planner is asked then."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.operations.use import PLAIN, Mode
from appliance.planning import Plan, PlanRequest, Reason
from appliance.planning.values import Profile, Split
from appliance.settings import Settings


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for; None leaves the number to the planner."""

    ctx: int | None = None
    parallel: int | None = None
    gpu_layers: int | None = None
    kv: str | None = None
    engine: str | None = None
    ubatch: int | None = None
    cpu_moe: int | None = None
    split: Split | None = None
    profile: Profile | None = None
    draft: str | None = None
    """A smaller model that proposes tokens: a name or a file."""


def request_for(settings: Settings, wishes: Wishes, mode: Mode = PLAIN) -> PlanRequest:
    """The wishes, then the settings, then the planner's own choice."""
    engine = settings.engine

    def number(wish: int | None, setting: int | str) -> int | None:
        if wish is not None:
            return wish
        return setting if isinstance(setting, int) else None

    return PlanRequest(
        ctx=number(wishes.ctx, engine.ctx),
        parallel=number(wishes.parallel, engine.parallel),
        gpu_layers=number(wishes.gpu_layers, engine.gpu_layers),
        kv_type=wishes.kv,
        reserve=settings.planning.reserve,
        kv_floor=settings.planning.kv_floor,
        profile=wishes.profile or engine.profile,
        embedding=mode.vectors,
        in_one_piece=mode.in_one_piece,
        n_ubatch=wishes.ubatch,
        cpu_moe=wishes.cpu_moe,
        split=wishes.split or "layer",
        cache_reuse=engine.cache_reuse,
        decode_goal=settings.goals.decode,
    )


def split_note(request: PlanRequest, plan: Plan) -> tuple[Reason, ...]:
    """What is to be said of a split that was asked for where nothing is shared."""
    if request.split == "layer" or plan.split == request.split:
        return ()
    where = f"{plan.devices[0].name} has all that is not in RAM" if plan.devices else "nothing is on a GPU"
    return (Reason("split_alone", f"--split {request.split} changes nothing: {where}"),)
