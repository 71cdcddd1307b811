-- Snapshots. Their files and their manifests are on disk too; the records can be made anew from those.

CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    namespace   TEXT NOT NULL,
    -- NULL: kept for whoever uses it, and removed with the last of them.
    name        TEXT,
    -- Of the manifest, which is canonical JSON.
    digest      TEXT NOT NULL,
    manifest    TEXT NOT NULL,
    -- How long its source stood still for it; NULL where it did not run.
    held_micros INTEGER,
    -- The key that made it; NULL: the daemon's owner.
    owner       TEXT,
    created_at  TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX snapshots_by_name ON snapshots (namespace, name) WHERE name IS NOT NULL;
-- Not unique: the same files taken twice in the same moment are the same snapshot under two names.
CREATE INDEX snapshots_by_digest ON snapshots (namespace, digest);
