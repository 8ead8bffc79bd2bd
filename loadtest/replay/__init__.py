"""Puts a schedule on the wire, each request at its instant, and writes down what comes back."""
