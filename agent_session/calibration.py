"""What an estimated token counts for with each model, learned from what its provider reported.

The rule it keeps: one ratio for each model, within 0.5 and 2, serves the trigger, the cut point and the bound of a
summary's input alike. The newest report teaches it; one that is far below what was sent teaches nothing, since then a
server has dropped the front of the prompt, and counted what was left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOWEST_RATIO, HIGHEST_RATIO = 0.5, 2.0

_WEIGHT_OF_ONE: Final = 1_000
"""Tokens that speak for a ratio of one, so that a short first message, mostly framing, does not decide."""

_LEAST_SUSPICIOUS: Final = 2_000
"""Tokens sent: hardly a server has a smaller context, so none drops the front of less."""

_FAR_BELOW = 0.4
"""Of what was sent."""

_MORE = 0.25
_GROWTH = 0.15
"""Once a quarter more was sent, a count that grew by this part of it is no cut that stands still."""


@dataclass(slots=True)
class _OfModel:
    ratio: float = 1.0
    first_low: tuple[int, int] | None = None  # sent, reported


class Calibration:
    def __init__(self) -> None:
        self._models: dict[str, _OfModel] = {}

    def ratio(self, model_id: str) -> float:
        """Tokens of the provider for each estimated token."""
        known = self._models.get(model_id)
        return known.ratio if known is not None else 1.0

    def learn(self, model_id: str, *, sent: int, reported: int) -> bool:
        """Take in one report. False, and nothing is learned, where a server seems to have dropped the front.

        `sent` is the estimate of the whole input, `reported` is what the provider counted of it. A low count that grows
        with what is sent is a count all the same (of a script that is cheaper than estimated, for example).
        """
        known = self._of(model_id)
        if _is_far_below(reported, sent):
            if known.first_low is None:
                known.first_low = (sent, reported)
                known.ratio = max(known.ratio, 1.0)  # reports on the way here may have been cut, too
            more = sent - known.first_low[0]
            grown = reported - known.first_low[1]
            if more < max(_MORE * known.first_low[0], _WEIGHT_OF_ONE) or grown < _GROWTH * more:
                return False
        self.learn_refused(model_id, sent=sent, counted=reported)
        return True

    def learn_refused(self, model_id: str, *, sent: int, counted: int) -> None:
        """What a refusal for size says was sent is a count that nobody has cut."""
        ratio = (counted + _WEIGHT_OF_ONE) / (sent + _WEIGHT_OF_ONE)
        self._of(model_id).ratio = min(HIGHEST_RATIO, max(LOWEST_RATIO, ratio))

    def is_cut(self, model_id: str, *, sent: int, reported: int) -> bool:
        """Whether the server seems to have dropped the front of a request; nothing is learned of it."""
        return _is_far_below(reported, round(sent * min(1.0, self.ratio(model_id))))

    def _of(self, model_id: str) -> _OfModel:
        return self._models.setdefault(model_id, _OfModel())


def _is_far_below(reported: int, sent: int) -> bool:
    return sent >= _LEAST_SUSPICIOUS and reported < _FAR_BELOW * sent
