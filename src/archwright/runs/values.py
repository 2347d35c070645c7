"""What a run keeps of a finished stage: the base class of such values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StageResult(BaseModel):
    """Base of what a stage returns: frozen, without NaN and infinity, so that it is strict JSON.

    A stage may return more than a reader of its result asks for: fields that the reader's class lacks are passed over.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
