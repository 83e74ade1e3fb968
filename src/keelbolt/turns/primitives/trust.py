"""Trust in content. It is never guessed: the code that creates the value must state it."""

from __future__ import annotations

from typing import Literal, cast, get_args

from keelbolt.turns.primitives.checks import one_of

TrustTier = Literal["first-party", "third-party-public", "third-party-private"]
ModalityHazard = Literal["inert", "extractable-instructions", "opaque-perceptual"]

TRUST_TIERS: tuple[TrustTier, ...] = get_args(TrustTier)
MODALITY_HAZARDS: tuple[ModalityHazard, ...] = get_args(ModalityHazard)


def trust_tier(name: str, value: object) -> TrustTier:
    return cast("TrustTier", one_of(name, value, TRUST_TIERS))


def modality_hazard(name: str, value: object) -> ModalityHazard:
    return cast("ModalityHazard", one_of(name, value, MODALITY_HAZARDS))
