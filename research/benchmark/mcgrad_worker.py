"""Fits MCGrad in an environment of its own, which holds nothing of trueup.

Reads pickled triples from its input: scores [n], labels [n] or None, segments as codes [n, s]. With labels it fits,
else it answers with the probabilities of the last fit, [n].
"""

import pickle
import sys
import warnings


def main() -> None:
    """Answer until the input ends."""
    import mcgrad.methods  # noqa: PLC0415 - only this environment has them
    import pandas as pd  # noqa: PLC0415

    warnings.simplefilter("ignore")
    model = mcgrad.methods.MCGrad(random_state=0)
    while True:
        try:
            p, y, codes = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
        except EOFError:
            return
        frame = pd.DataFrame({"p": p} | {f"s{i}": column.astype(str) for i, column in enumerate(codes.T)})
        names = list(frame.columns[1:])
        if y is None:
            answer = model.predict(frame, "p", categorical_feature_column_names=names)
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            model = mcgrad.methods.MCGrad(random_state=0)
            model.fit(frame.assign(y=y), "p", "y", categorical_feature_column_names=names)


if __name__ == "__main__":
    main()
