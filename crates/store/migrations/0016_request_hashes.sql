-- The SHA-256 of what was asked under a request id, in hexadecimal, so that another request with the same id is told
-- from a repeated one. NULL without a request id, and for those from before this was written down.
ALTER TABLE sandboxes ADD COLUMN request_hash TEXT;
ALTER TABLE execs ADD COLUMN request_hash TEXT;
ALTER TABLE package_jobs ADD COLUMN request_hash TEXT;
