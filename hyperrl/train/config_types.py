"""What every section of a config is made of: strict, frozen, numbers that are numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "Count",
    "Decay",
    "Fraction",
    "NotNegative",
    "Number",
    "Positive",
    "Real",
    "Section",
    "UserPath",
    "Whole",
]


def _refuse_switch(value: object) -> object:
    """True and False are integers to Python, but no number that anybody means."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


Number = BeforeValidator(_refuse_switch)
Real = Annotated[float, Number]
Fraction = Annotated[float, Number, Field(ge=0, le=1)]
Decay = Annotated[float, Number, Field(ge=0, lt=1)]
Positive = Annotated[float, Number, Field(gt=0)]
NotNegative = Annotated[float, Number, Field(ge=0)]
Count = Annotated[int, Number, Field(ge=1)]
Whole = Annotated[int, Number, Field(ge=0)]
UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path in which ``~`` is the home folder; shells leave it alone behind ``--set a.b=``."""


class Section(BaseModel):
    """Base of every section: unknown keys are errors, values are not changed after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=False, use_attribute_docstrings=True, allow_inf_nan=False
    )
