-- The ports of a sandbox that are exposed, as a list in JSON.

ALTER TABLE sandboxes ADD COLUMN ports TEXT;
