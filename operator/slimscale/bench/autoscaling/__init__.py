"""Autoscalers on the same traces: SLO attainment, replica-seconds and oscillations of each."""
