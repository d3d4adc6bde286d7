"""What takes several steps, written once over the ports: no event loop, no thread, no driver is named in here."""
