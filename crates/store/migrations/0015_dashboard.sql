-- Who asked for an exec; NULL for those from before this was written down, and for a sandbox's own init.
ALTER TABLE execs ADD COLUMN asked_by TEXT;

-- Addresses that show a sandbox, or what a key does, to others. One that is not here leads nowhere.
CREATE TABLE shares (
    id         TEXT PRIMARY KEY,
    -- Who made it, in words, and the key of whoever did.
    made_by    TEXT NOT NULL,
    key        TEXT,
    -- What it shows: one of the two.
    sandbox    TEXT,
    shown_key  TEXT,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL
) STRICT;
