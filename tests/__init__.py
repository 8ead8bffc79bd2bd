"""A package, so that helper modules are imported by their full name: `from tests.strategies import ...`."""
