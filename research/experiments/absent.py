"""Tables, figures and claims of the papers that no experiment tries, and why."""

from typing import Final

from research.experiments.base import NOT_TRIED, Claim

_BAYES: Final = "Deshpande, Marx & Kuleshov"

ABSENT: Final = tuple(
    Claim(paper, claim, published, found, NOT_TRIED)
    for paper, claim, published, found in (
        (
            "Foster & Kakade",
            "III.C, IV.A: growing families of test functions, calibrated in the limit",
            "asymptotic, no figure",
            "only the linear test function is built in",
        ),
        (
            "Kuleshov & Ermon",
            "Figure 3: question answering and diabetes",
            "calibrated, accuracy within .01 of raw's",
            "neither the answers nor the genotypes are public",
        ),
        (
            "Kuleshov & Ermon",
            "Multiclass: a grid over the simplex",
            "rate 1 / (ε^2K √T), no figure",
            "exponential in the number of classes; classes are served one against the rest",
        ),
        (_BAYES, "Figures 1 and 6: steps of one run on Forrester", "the calibrated run finds .8", "single runs, drawn"),
        (_BAYES, "Figure 4: conformal Bayesian optimisation, adaptive UCB", "ours is better", "baselines absent"),
        (
            _BAYES,
            "Tables 1 and 3: warpings, Box-Cox, logarithm, ensemble",
            "calibrated best in most",
            "baselines absent; the columns *uncalibrated* and *calibrated* are judged above",
        ),
        (_BAYES, "Table 4: kernels, splits, recalibrators, designs", "wins .2 to 1", "one setting of each was run"),
        (
            _BAYES,
            "Figure 5, Tables 5 and 6: online LDA, CIFAR10, SVHN",
            "lower perplexity and error on average",
            "needs images, newsgroups and days of training",
        ),
        (_BAYES, "A.4: Alpine for 100 steps", "minimum 11.43 for 12.75", "25 steps were run"),
    )
)
