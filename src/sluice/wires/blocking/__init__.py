"""Blocking implementations of the ports: they never suspend, so one ``send(None)`` runs a flow to its end."""
