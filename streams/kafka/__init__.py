"""Requests to the brokers that are not about records: topics, permissions, connections."""
