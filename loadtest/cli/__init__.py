"""The command line: one file per command, flags only. It must load fast, so commands import what they need inside."""
