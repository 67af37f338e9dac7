"""Measurements that chose and judged what is built in: no part of the product."""
