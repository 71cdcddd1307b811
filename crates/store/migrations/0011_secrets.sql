-- Secrets, with their values: the file is readable by its owner only.

CREATE TABLE secrets (
    namespace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    rules        TEXT NOT NULL,
    value        TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    updated_at   TEXT NOT NULL,
    -- When a sandbox was last started with it; NULL before the first.
    last_used_at TEXT,
    PRIMARY KEY (namespace, name)
) STRICT;

-- What a sandbox with secrets has of its own: the authority that its programs trust, the hosts that this can vouch for,
-- and secrets that came with the request.
CREATE TABLE sandbox_secrets (
    sandbox     TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    hosts       TEXT NOT NULL,
    certificate TEXT NOT NULL,
    key         TEXT NOT NULL,
    own         TEXT NOT NULL
) STRICT;
