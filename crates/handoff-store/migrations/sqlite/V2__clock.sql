-- The store's time at one moment of one boot of the host, and how far it was off the host's clock then. From there
-- on it goes by boot time, also over a restart of the program. One row.
CREATE TABLE clock (
    only     INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    boot_id  TEXT    NOT NULL,
    boot_ms  INTEGER NOT NULL CHECK (boot_ms >= 0),
    store_ms INTEGER NOT NULL,
    off_ms   INTEGER NOT NULL
) STRICT;
