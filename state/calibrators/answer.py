"""What a calibrator answers to a forecast."""

from typing import Generic, NamedTuple, TypeVar

_Served_co = TypeVar("_Served_co", covariant=True)


class Answer(NamedTuple, Generic[_Served_co]):
    """What a calibrator answers to one forecast."""

    #: The answer to serve: a probability, or the values of the calibrator's kind of forecast. It is never random. If
    #: the calibrator is randomised, it is the mean of the distribution of ``draw``.
    p: _Served_co
    #: The random score of a randomised calibrator, keyed by the event id; any other calibrator repeats ``p`` here.
    draw: _Served_co
    #: What `Recalibrator.update` needs once the outcome is known.
    ticket: bytes


#: The answer of a calibrator of probabilities: ``p`` and ``draw`` in [0, 1].
Prediction = Answer[float]
