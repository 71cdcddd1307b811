-- The sandbox that goes for the sake of this one, once this one runs.

ALTER TABLE sandboxes ADD COLUMN replaces TEXT;
