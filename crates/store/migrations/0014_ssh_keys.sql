-- Public keys of SSH. Whoever holds the other half logs in as the key that it is bound to.

CREATE TABLE ssh_keys (
    id          TEXT PRIMARY KEY,
    key         TEXT NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    -- SHA256:…, as ssh-keygen shows it. One public key means one caller.
    fingerprint TEXT NOT NULL UNIQUE,
    algorithm   TEXT NOT NULL,
    comment     TEXT NOT NULL,
    created_at  TEXT NOT NULL
) STRICT;
