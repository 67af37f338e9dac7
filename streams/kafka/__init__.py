"""What is asked of the brokers beside records: topics, rights, connections."""
