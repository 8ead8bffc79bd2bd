"""Recorded situations and their right answers; `pytest tests/cases --cases DIR` runs another folder of them."""
