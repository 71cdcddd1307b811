-- Keys, who made a sandbox, and the audit.

-- The key that made it; NULL: the daemon's owner. Not a reference: a key may be forgotten before its sandboxes are.
ALTER TABLE sandboxes ADD COLUMN owner TEXT;

CREATE TABLE keys (
    id            TEXT PRIMARY KEY,
    label         TEXT,
    -- SHA-256 of the secret, which is stored nowhere. The secret is 256 random bits: nothing slower is needed.
    hash          BLOB NOT NULL,
    -- NULL: every namespace.
    namespace     TEXT,
    max_sandboxes INTEGER,
    max_memory    INTEGER,
    read_only     INTEGER NOT NULL,
    created_at    TEXT NOT NULL,
    expires_at    TEXT,
    revoked_at    TEXT,
    last_used_at  TEXT
) STRICT;

CREATE UNIQUE INDEX keys_by_label ON keys (label) WHERE label IS NOT NULL AND revoked_at IS NULL;

-- AUTOINCREMENT: a number that was given once is never given again.
CREATE TABLE calls (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    at          TEXT NOT NULL,
    -- NULL: nobody found out who asked.
    who         TEXT,
    key         TEXT,
    frontend    TEXT NOT NULL,
    action      TEXT NOT NULL,
    sandbox     TEXT,
    namespace   TEXT,
    -- Code of the error; NULL when it went well.
    error       TEXT,
    duration_ms INTEGER NOT NULL,
    client      TEXT
) STRICT;

CREATE INDEX calls_by_namespace ON calls (namespace, number) WHERE namespace IS NOT NULL;
CREATE INDEX calls_by_nobody ON calls (number) WHERE who IS NULL;
CREATE INDEX calls_by_somebody ON calls (number) WHERE who IS NOT NULL;
