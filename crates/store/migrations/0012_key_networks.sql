-- What sandboxes of a key's callers reach at most, as a policy in JSON.

ALTER TABLE keys ADD COLUMN network TEXT;
