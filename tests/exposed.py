"""What Prometheus reads of gauges, by the way it goes in a worker: handed over, and written from a copy."""

from streams.metrics.gauges import Gauges
from streams.metrics.mirror import ChangeSource, Mirror


def exposed(gauges: Gauges) -> str:
    """Return everything in Prometheus's text format."""
    return Mirror(ChangeSource(gauges.exposition, gauges), gauges._policies).exposition().decode()
