"""The bundled servers: one set of policies and one cluster, on a virtual clock or on the machine's."""
