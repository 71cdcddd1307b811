-- Sandboxes, execs and events. Columns hold what is searched for; the rest is JSON as the `sandbox` crate writes it.
-- Times are RFC 3339 in UTC with nine digits of fraction, so that they sort as text.

CREATE TABLE sandboxes (
    id             TEXT PRIMARY KEY,
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    request_id     TEXT,
    state          TEXT NOT NULL,
    reason         TEXT,
    spec           TEXT NOT NULL,
    plan           TEXT NOT NULL,
    isolation      TEXT,
    lifetime       TEXT NOT NULL,
    created_at     TEXT NOT NULL,
    started_at     TEXT,
    stopped_at     TEXT,
    expires_at     TEXT,
    last_active_at TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (namespace, name);
CREATE UNIQUE INDEX sandboxes_by_request ON sandboxes (namespace, request_id) WHERE request_id IS NOT NULL;

CREATE TABLE execs (
    id         TEXT PRIMARY KEY,
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    request_id TEXT,
    state      TEXT NOT NULL,
    spec       TEXT NOT NULL,
    outcome    TEXT,
    pid        INTEGER,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at   TEXT
) STRICT;

CREATE INDEX execs_by_sandbox ON execs (sandbox);
CREATE UNIQUE INDEX execs_by_request ON execs (sandbox, request_id) WHERE request_id IS NOT NULL;

-- AUTOINCREMENT: a number that was given once is never given again, even after the newest rows were removed.
CREATE TABLE events (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    at        TEXT NOT NULL,
    kind      TEXT NOT NULL,
    sandbox   TEXT,
    name      TEXT,
    namespace TEXT,
    exec      TEXT,
    detail    TEXT NOT NULL
) STRICT;
