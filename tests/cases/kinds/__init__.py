"""One module per kind of case, each with `run(case_dir, case, expected)` that raises AssertionError."""
