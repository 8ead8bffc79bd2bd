"""Run directories that nobody measured: every file with right checksums and wrong contents, made from a seed."""
