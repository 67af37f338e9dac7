"""What crosses Kafka: records, topics, the table, the transport, settings and metrics."""
