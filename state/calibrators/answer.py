"""What a calibrator answers to a forecast."""

from typing import Generic, NamedTuple, TypeVar

_Served_co = TypeVar("_Served_co", covariant=True)


class Answer(NamedTuple, Generic[_Served_co]):
    """What a calibrator answers to one forecast.

    Attributes
    ----------
    p
        What to serve: a probability, or what the calibrator's kind of forecast has in its place. Nothing in it is
        drawn; for a randomised calibrator it is the mean of what ``draw`` is drawn from.
    draw
        One draw, by the event's key, of a randomised calibrator; equal to ``p`` where nothing is drawn.
    ticket
        What `Recalibrator.update` needs once the outcome is known.
    """

    p: _Served_co
    draw: _Served_co
    ticket: bytes


#: The answer of a calibrator of probabilities: ``p`` and ``draw`` in [0, 1].
Prediction = Answer[float]
#: Makes a named tuple at half the price of its own constructor: `new(Answer, (p, draw, ticket))`.
new = tuple.__new__
