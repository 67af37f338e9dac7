"""``trueup schema``: the Avro schema of an output."""

import argparse
import json

from cli.options import DONE, Commands, command
from streams.records import output_schemas


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    schema = command(
        commands,
        "schema",
        "print the Avro schema of an output",
        "cli.schema:run",
        json_output=False,
        says="Prints the Avro schema. With TRUEUP_OUTPUT_REGISTER=no it must be in the registry before a "
        "worker starts.",
    )
    schema.add_argument("output", choices=tuple(output_schemas.NAMES), help="the topic, by its usual name")


def run(options: argparse.Namespace) -> int:
    """Print the schema, and return the status."""
    print(json.dumps(output_schemas.avro(options.output), indent=2))
    return DONE
