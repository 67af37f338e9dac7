"""How each figure is defined, one line each in the page."""

from typing import Final

#: Name and definition, in the order in which they come up.
DEFINITIONS: Final = (
    (
        "Forecast, outcome",
        "A probability p in [0, 1] of a yes, and what happened: y = 1 (yes) or 0 (no).",
    ),
    (
        "Raw, calibrated",
        (
            "p as the model gave it; p as the configuration would have served it at that moment, from outcomes known "
            "by then, without a draw."
        ),
    ),
    (
        "ECE",
        (
            "Expected calibration error: in ten bins of p of width 0.1, Σ |Σp − Σy| over the bins, divided by the "
            "number of forecasts. 0 is best."
        ),
    ),
    (
        "Chance",
        (
            "The ECE to expect if every p were exactly the chance of its outcome. An ECE near it is as good as can be "
            "measured with so many outcomes."
        ),
    ),
    (
        "Smooth ECE",
        (
            "The ECE with hat-shaped weights around 0, 0.1, … 1 in place of bins, so that no bin's edge can make it "
            "jump."
        ),
    ),
    (
        "Distance",
        (
            "To calibration, at most: changed by so much on average, p would have been perfectly calibrated: of the "
            "forecasts of each value, exactly that share were yes."
        ),
    ),
    (
        "Two-bin",
        (
            "The root of the averaged two-bin error: of the mean, over all thresholds, of the squared errors below and "
            "above it. No bins are chosen. In the JSON its square, two_bin, stands beside what chance gives; the "
            "difference of two squares has no bias."
        ),
    ),
    (
        "Worst window",
        (
            "Outcomes of one stream on one partition are cut into windows of 5,000, one after another. This is the "
            "largest ECE of a window; the last one is left out if it is not full."
        ),
    ),
    (
        "Alarm",
        (
            "log10 of the evidence that forecasts of classes or numbers are not calibrated, the largest so far. Chance "
            "takes one calibrated stream in a thousand to 3, however often it is read."
        ),
    ),
    (
        "CRPS",
        "Of numbers: twice the integral of the pinball loss over the levels, by those served; in units of the outcome.",
    ),
    (
        "Brier score",
        "Mean of (p − y)². Smaller is better; it is proper: only the true chances make it smallest.",
    ),
    (
        "Log loss",
        "Mean of −log of the probability given to what happened, in nats, p within [10⁻⁶, 1 − 10⁻⁶]. Proper, too.",
    ),
    (
        "AUC, KS",
        (
            "Share of the pairs of a yes and a no in which the yes has the larger p, ties half; largest distance "
            "between the distributions of p of both. Only forecasts of one window count: some 200 neighbours in "
            "time that one calibrator answered. Maps of other times serve another scale."
        ),
    ),
    (
        "Recall, precision",
        (
            "Of the highest p, as many as the stated share of the forecasts of each window of neighbours: their share "
            "of all yeses, and the share of yes among them. Of a tie at the edge, in proportion."
        ),
    ),
    (
        "Off",
        "Mean p over the share of yes, less 1: +100% is twice too high, whatever the rate.",
    ),
    (
        "Warm-up",
        (
            "Forecasts answered before the calibrator had learnt an outcome, or before the first that it served other "
            "than raw. After the warm-up: in nobody's."
        ),
    ),
    (
        "Draw",
        "What a calibrator on a grid tosses between two points; p is served and needs no toss.",
    ),
    (
        "Regret",
        "Σ (p calibrated − y)² − Σ (p raw − y)². Below 0: calibration has helped so far.",
    ),
    (
        "Own error, bound",
        (
            "What a calibrator measures of itself, and what its theorem allows on any sequence with as many outcomes "
            "outstanding. Of a draw: over the grid points, Σ |Σp − Σy| / n of what was drawn. Where the last part is "
            "certified: how far p is at most from calibrated scores, on average. Compare the two with each other, not "
            "with the ECE."
        ),
    ),
    (
        "Band of a diagram",
        "Wilson's 95% interval of the share of yes in one bin, as if outcomes were independent.",
    ),
    (
        "95% interval",
        (
            "Paired moving-block bootstrap: all forecasters are drawn together, in blocks of neighbours in time. It "
            "leaves out 0: the difference is clear. It includes 0: no difference is shown."
        ),
    ),
    (
        "Label coverage",
        "Of the forecasts issued in a band of the raw score, the share that got an outcome within the replay.",
    ),
    (
        "Range without assumptions",
        ("The share of yes among all forecasts of a band if every missing outcome were no, and if every one were yes."),
    ),
    (
        "Bias along a feature",
        "Σ x(p − y) / √(n Σ x²), in [−1, 1]: below 0, forecasts are too low where x is large. 0 is unbiased.",
    ),
    (
        "Alert",
        (
            "A forecast of at least the threshold. Precision: share of yes among alerts with an outcome. Recall: "
            "share of alerts among yes."
        ),
    ),
    (
        "Equal volume",
        "The threshold moved until as many alerts are raised as raw; forecasts tied at it count in proportion.",
    ),
)
