-- Jobs that install packages. What they printed is in the ledger of their exec.

CREATE TABLE package_jobs (
    id         TEXT PRIMARY KEY,
    sandbox    TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    request_id TEXT,
    manager    TEXT NOT NULL,
    -- A JSON list, as the manager was told.
    packages   TEXT NOT NULL,
    state      TEXT NOT NULL,
    -- NULL until the install itself began. Not a reference: old execs go before their jobs do.
    exec       TEXT,
    -- Where inside the index is served, so that the next daemon can serve it there too.
    port       INTEGER,
    message    TEXT,
    -- A JSON list of names and versions.
    installed  TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at   TEXT
) STRICT;

CREATE INDEX package_jobs_by_sandbox ON package_jobs (sandbox);
CREATE INDEX package_jobs_by_state ON package_jobs (state) WHERE state = 'installing';
CREATE UNIQUE INDEX package_jobs_by_request ON package_jobs (sandbox, request_id) WHERE request_id IS NOT NULL;
