"""``python -m research.experiments``; apart, as no process of a pool can import this file."""

from research.experiments.run import main

if __name__ == "__main__":
    raise SystemExit(main())
