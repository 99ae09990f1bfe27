"""Request and response models of rollouts, as `schemas`."""

from datetime import datetime
from typing import Annotated

from pydantic import AliasPath, Field

from licserver.web.admin.schemas import Change, ResponseModel


class RolloutChange(Change):
    """What changes in a rollout: one of the two."""

    percent: Annotated[float, Field(gt=0, le=100, description="It stays there; 100 ends the rollout.")] = 100
    paused: bool = False


class RolloutPlan(ResponseModel):
    """How a version reaches more and more installations."""

    plan: Annotated[str, Field(description="Such as `7d`, or `10%,50%@2d,100%@5d`.")]
    started_at: Annotated[datetime, Field(description="Moved on by the time of its pauses.")]
    paused_at: datetime | None


class Rollout(ResponseModel):
    """How a version is doing; without a rollout it reaches all installations."""

    version: Annotated[str, Field(validation_alias=AliasPath("release", "version"))]
    percent: Annotated[float, Field(description="Share of all installations that are offered it.")]
    rollout: Annotated[RolloutPlan | None, Field(validation_alias=AliasPath("release", "rollout"))]
    critical_below: Annotated[str | None, Field(validation_alias=AliasPath("release", "critical_below"))]
    update_checks: Annotated[
        int,
        Field(validation_alias="checks", description="By installations of it, today and yesterday, UTC."),
    ]
    update_checks_of_all: Annotated[
        int, Field(validation_alias="checks_of_all", description="By all installations of the product.")
    ]
    rolled_back: Annotated[int, Field(description="Installations that went back, as their apps report.")]
