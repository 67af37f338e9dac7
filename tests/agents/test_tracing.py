"""Spans where their packages or a receiver are missing; tests/e2e/test_tracing.py has both."""

import sys

import pytest

from agents.tracing import Spans
from streams.config.settings import Settings


def test_without_the_packages_or_a_receiver_there_are_no_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert Spans.wanted(Settings(), {}) is None
    assert not caplog.records
    assert Spans.wanted(Settings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) is None
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no spans are sent" in caplog.text
    assert "pip install 'trueup[tracing]'" in caplog.text
