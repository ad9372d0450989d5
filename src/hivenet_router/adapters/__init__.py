"""Everything that touches the world: sockets, clocks, disks, stores. Decisions live in core and wire."""
