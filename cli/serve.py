"""``trueup run``: runs all stages that the settings ask for, or one of them."""

import argparse
import os
import textwrap

from cli.options import Commands, command, settings
from streams.config.settings import Settings

#: Stages that may be run alone.
STAGES = ("worker", "router", "intake")


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    serve = command(
        commands,
        "run",
        "serve: read forecasts and outcomes, write calibrated predictions",
        "cli.serve:run",
        json_output=False,
        says="Serve until SIGTERM: the worker, and intake and router if sources need them, each in a process of its "
        "own,\nwith metrics at the port of the settings (worker), the next one (router) and the one behind it "
        "(intake).\nIf one of them ends, all do. Run several: partitions are shared out among them.",
        more=_settings(),
    )
    serve.add_argument(
        "stage",
        nargs="?",
        choices=STAGES,
        help="only this stage. worker: the engine; intake: reads sources of any keys; router: sends labels that name "
        "only their event to the streams that the event was forecast in",
    )
    serve.add_argument("--of-all-stages", action="store_true", help=argparse.SUPPRESS)  # a worker beside the others


def _settings() -> str:
    lines = ["settings (environment variables):"]
    for name, text, default in Settings.described():
        lines += textwrap.wrap(
            f"{name}  {text} (default: {default})", 100, initial_indent="  ", subsequent_indent=" " * 6
        )
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> int:
    """Run; return the status."""
    from agents import all_stages  # noqa: PLC0415 - Faust takes a second to import; --help should not wait

    if options.stage is None:
        return all_stages.run(os.environ)
    if options.stage == "intake":
        from agents import intake  # noqa: PLC0415 - as above

        return intake.run(settings())
    if options.stage == "router":
        from agents import router, worker  # noqa: PLC0415 - as above

        return worker.run(settings().router, stage=router.ROUTER)
    if options.of_all_stages:
        return all_stages.worker_of_all(settings())
    from agents import worker  # noqa: PLC0415 - as above

    return worker.run(settings())
