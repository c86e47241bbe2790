"""Runs inside the user's process: hooks, patches, meter, events. Imports only autoamp.wire."""
