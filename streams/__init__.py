"""What crosses Kafka: settings, records, topics, the table, the transport, the gauges."""
