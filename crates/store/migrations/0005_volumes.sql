-- Volumes: files with a name of their own, which outlive the sandboxes that mount them.

CREATE TABLE volumes (
    id         TEXT PRIMARY KEY,
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- 'making' until its files are there, 'removing' from before they go: what is neither stays.
    state      TEXT NOT NULL,
    spec       TEXT NOT NULL,
    -- How its files are kept; NULL until they are.
    storage    TEXT,
    created_at TEXT NOT NULL,
    -- The key that made it; NULL for the daemon's owner.
    owner      TEXT
) STRICT;

CREATE UNIQUE INDEX volumes_by_name ON volumes (namespace, name);
